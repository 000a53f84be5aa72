"""The normalisation passes, each on a graph of its own."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir

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
