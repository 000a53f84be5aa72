"""The normalisation passes, each on a graph of its own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir
import onnxruntime

from model_export.exporter.backends.onnx.passes.divide_by_root import DivideByRootPass
from model_export.exporter.backends.onnx.passes.drop_host_metadata import DropHostMetadataPass
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
