"""The normalisation passes, each on a graph of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir
import onnxruntime
import pytest

from model_export.exporter.backends.onnx.passes.divide_by_root import DivideByRootPass
from model_export.exporter.backends.onnx.passes.drop_host_metadata import DropHostMetadataPass
from model_export.exporter.backends.onnx.passes.grouped_attention import GroupedAttentionPass
from model_export.exporter.backends.onnx.passes.name_dimensions import NameDimensionsPass
from model_export.exporter.backends.onnx.passes.static_dimensions import StaticDimensionsPass

_FLOAT = onnx_ir.TensorType(onnx_ir.DataType.FLOAT)


def _model(*inputs: tuple[str, Sequence[int | str]]) -> onnx_ir.Model:
    """Each input through an Identity node; the last node's output is the graph's."""
    values = [onnx_ir.Value(name=n, shape=onnx_ir.Shape(s), type=_FLOAT) for n, s in inputs]
    nodes = [onnx_ir.node("Identity", [value]) for value in values]
    for node, value in zip(nodes, values, strict=True):
        node.outputs[0].shape, node.outputs[0].name = value.shape, f"{value.name}.out"
    graph = onnx_ir.Graph(values, [nodes[-1].outputs[0]], nodes=nodes, opset_imports={"": 20})
    return onnx_ir.Model(graph, ir_version=10, producer_version="2.12.0+cu130")


def _dims(value: onnx_ir.Value) -> list[int | str | None]:
    assert value.shape is not None
    return [dim if isinstance(dim, int) else dim.value for dim in value.shape]


def test_host_metadata_is_dropped_and_the_rest_kept() -> None:
    model = _model(("x", [1]))
    node = model.graph[0]
    node.metadata_props["pkg.torch.onnx.stack_trace"] = "File /home/someone/model.py"
    node.metadata_props["namespace"] = "layers.0"
    assert DropHostMetadataPass()(model).modified
    assert dict(node.metadata_props) == {"namespace": "layers.0"}
    assert model.producer_version == "2.12.0"
    assert not DropHostMetadataPass()(model).modified


def test_digits_become_sizes() -> None:
    model = _model(("cache", ["s0", "2", "16", 4]))
    assert StaticDimensionsPass()(model).modified
    assert _dims(model.graph.inputs[0]) == ["s0", 2, 16, 4]
    assert _dims(model.graph.outputs[0]) == ["s0", 2, 16, 4]
    assert not StaticDimensionsPass()(model).modified


def test_symbols_get_usual_names_and_sums_follow() -> None:
    model = _model(
        ("input_ids", ["s10", "s7"]),
        ("input.cache.layers.0.keys", ["s10", 2, "s54", 16]),
        ("image", ["s10", "s3"]),
    )
    model.graph[2].outputs[0].shape = onnx_ir.Shape(["s10", "s54 + 2*s7"])
    NameDimensionsPass({})(model)
    assert [_dims(value) for value in model.graph.inputs] == [
        ["batch", "sequence"],
        ["batch", 2, "past_sequence", 16],
        ["batch", "image_axis_1"],
    ]
    assert _dims(model.graph.outputs[0]) == ["batch", "past_sequence + 2*sequence"]


def test_two_sizes_never_share_a_name() -> None:
    model = _model(("input_ids", ["s0", "s1"]), ("position_ids", ["s2", "s3"]))
    NameDimensionsPass({})(model)
    names = [name for value in model.graph.inputs for name in _dims(value)]
    assert names == ["batch", "sequence", "position_ids_batch", "position_ids_sequence"]


def test_the_targets_names_come_first() -> None:
    model = _model(("input_ids", ["s0", "s1"]), ("input.cache.keys", ["s0", 2, "s1"]))
    NameDimensionsPass({"cache.keys": {0: "rows"}, "input_ids": {1: "batch"}})(model)
    assert [_dims(value) for value in model.graph.inputs] == [
        ["rows", "batch"],
        ["rows", 2, "batch"],
    ]


def _norm() -> tuple[onnx_ir.Model, onnx_ir.Node]:
    """`Mul(x, Reciprocal(Sqrt(x)))`, whose reciprocal is used a second time as itself."""
    x = onnx_ir.Value(name="x", shape=onnx_ir.Shape([3]), type=_FLOAT)
    root = onnx_ir.node("Sqrt", [x])
    inverse = onnx_ir.node("Reciprocal", [root.outputs[0]])
    product = onnx_ir.node("Mul", [inverse.outputs[0], x], name="product")
    for node, name in ((root, "root"), (inverse, "inverse"), (product, "normed")):
        node.outputs[0].name, node.outputs[0].shape, node.outputs[0].type = name, x.shape, _FLOAT
    graph = onnx_ir.Graph(
        [x], [product.outputs[0]], nodes=[root, inverse, product], opset_imports={"": 20}
    )
    return onnx_ir.Model(graph, ir_version=10), inverse


def _operators(model: onnx_ir.Model) -> list[str]:
    return [node.op_type for node in model.graph]


def test_a_product_with_an_inverse_root_is_a_quotient() -> None:
    model, _ = _norm()
    assert DivideByRootPass()(model).modified
    assert _operators(model) == ["Sqrt", "Div"]
    (output,) = model.graph.outputs
    assert (output.name, _dims(output), output.type) == ("normed", [3], _FLOAT)
    session = onnxruntime.InferenceSession(
        onnx_ir.to_proto(model).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (result,) = session.run(None, {"x": np.array([1, 4, 9], np.float32)})
    np.testing.assert_array_equal(result, [1, 2, 3])
    assert not DivideByRootPass()(model).modified


def test_an_inverse_root_that_is_an_output_stays() -> None:
    model, inverse = _norm()
    model.graph.outputs.append(inverse.outputs[0])
    assert DivideByRootPass()(model).modified
    assert _operators(model) == ["Sqrt", "Reciprocal", "Div"]


def test_the_square_of_an_inverse_root_stays() -> None:
    model, inverse = _norm()
    model.graph[2].replace_input_with(1, inverse.outputs[0])
    assert not DivideByRootPass()(model).modified


def _attention(heads: int, groups: int, **changes: Any) -> onnx_ir.Model:
    """Scores of queries with keys that are repeated for each head, as an export writes them."""
    axis, scale = changes.get("axis", 2), changes.get("scale", [0.5])
    text = f"""
        <ir_version: 10, opset_import: ["": 20]>
        attention (float[batch, {heads}, new, 4] queries, float[batch, {groups}, all, 4] keys)
            => (float[batch, {heads}, new, all] scores)
        <int64[1] axis = {{{axis}}}, int64[4] joined = {{0, {heads}, -1, 4}},
         float scale = {{{scale[0]}}},
         int64[5] repeated = {{1, 1, {heads // groups}, 1, 1}}>
        {{
            apart = Unsqueeze(keys, axis)
            copies = Expand(apart, repeated)
            whole = Reshape(copies, joined)
            swapped = Transpose<perm = [0, 1, 3, 2]>(whole)
            scaled = Mul(swapped, scale)
            scores = MatMul(queries, scaled)
        }}
    """
    model = onnx_ir.from_onnx_text(text)
    onnx_ir.passes.common.ShapeInferencePass()(model)
    for node in model.graph:
        (value,) = node.outputs
        if node.op_type == "Reshape":
            value.shape = onnx_ir.Shape(["batch", heads, "all", 4])
        if node.op_type == "Expand":
            value.shape = onnx_ir.Shape(["batch", groups, heads // groups, "all", 4])
    return model


@pytest.mark.parametrize(("heads", "groups"), [(6, 2), (4, 1), (9, 3)])
def test_scores_of_a_group_are_those_of_its_heads(heads: int, groups: int) -> None:
    model = _attention(heads, groups)
    generator = np.random.default_rng(0)
    queries = generator.standard_normal((2, heads, 3, 4), dtype=np.float32)
    keys = generator.standard_normal((2, groups, 5, 4), dtype=np.float32)
    assert GroupedAttentionPass()(model).modified
    assert _operators(model) == ["Transpose", "Mul", "Reshape", "MatMul", "Reshape"]
    session = onnxruntime.InferenceSession(
        onnx_ir.to_proto(model).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (scores,) = session.run(None, {"queries": queries, "keys": keys})
    each = np.repeat(keys, heads // groups, axis=1)
    np.testing.assert_allclose(scores, 0.5 * queries @ each.swapaxes(2, 3), rtol=1e-5, atol=1e-6)
    assert not GroupedAttentionPass()(model).modified


def test_other_repetitions_stay() -> None:
    assert not GroupedAttentionPass()(_attention(4, 2, axis=1)).modified
