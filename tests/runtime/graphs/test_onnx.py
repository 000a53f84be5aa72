"""Graphs in ONNX Runtime, against the eager models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir
import onnxruntime
import pytest

from model_export.manifest import ComponentRecord, TensorRecord
from model_export.runtime.graph import open_graph
from model_export.runtime.graphs.onnx import ort_value
from runtime.graphs.graph_cases import (
    Component,
    check_damage,
    check_plain,
    check_wrong_inputs,
    export_bert,
)


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Component:
    return export_bert("onnx", tmp_path_factory.mktemp("bert"))


def test_plain(bert: Component) -> None:
    check_plain(bert, 1e-5)


def test_wrong_inputs(bert: Component) -> None:
    check_wrong_inputs(bert)


def test_damage(bert: Component, tmp_path: Path) -> None:
    check_damage(bert, tmp_path)


def test_bfloat16_comes_out_as_float32(tmp_path: Path) -> None:
    value = onnx_ir.Value(
        name="x", type=onnx_ir.TensorType(onnx_ir.DataType.BFLOAT16), shape=onnx_ir.Shape(["n"])
    )
    same = onnx_ir.node("Identity", [value])
    same.outputs[0].name = "y"
    same.outputs[0].type, same.outputs[0].shape = value.type, value.shape
    graph = onnx_ir.Graph([value], same.outputs, nodes=[same], name="same", opset_imports={"": 18})
    onnx_ir.save(onnx_ir.Model(graph, ir_version=10), tmp_path / "model.onnx")
    record = ComponentRecord(
        "model",
        "model.onnx",
        (),
        (TensorRecord("x", "bfloat16", ("n",)),),
        (TensorRecord("y", "bfloat16", ("n",)),),
    )
    outputs = open_graph(tmp_path, "onnx", record).run(
        {"x": np.array([1.0, -2.5, 1 / 3], np.float32)}
    )
    assert outputs["y"].tolist() == [1.0, -2.5, 0.333984375]


def test_onnxruntime_still_gives_no_numpy_for_bfloat16() -> None:
    """Once this fails, `as_numpy` needn't read memory by address (onnxruntime 1.32.0)."""
    value = ort_value(np.ones(2, np.float32), "bfloat16")
    assert isinstance(value, onnxruntime.OrtValue)
    with pytest.raises(RuntimeError, match="No corresponding Numpy type"):
        value.numpy()
