"""Constants of several IR files in one `.bin`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import openvino
import openvino.opset14 as ops
import pytest

from model_export.exporter.backends.openvino.engine import write_ir
from model_export.exporter.backends.openvino.shared_weights import share_weights

# Some CPUs would multiply in bfloat16.
_FLOAT32 = {"INFERENCE_PRECISION_HINT": "f32"}
_WEIGHT = np.arange(96, dtype=np.float32).reshape(8, 12)


def _write(xml: Path, *weights: np.ndarray) -> Path:
    """A graph that multiplies its input (rows, 8) with each of `weights` (8, 12), one output each.

    The constants' names hold what XML must escape.
    """
    parameter = ops.parameter([-1, 8], np.float32, name="x")
    constants = [ops.constant(weight, name=f'w<{i}> & "w"') for i, weight in enumerate(weights)]
    results = [ops.matmul(parameter, constant, False, False) for constant in constants]
    write_ir(openvino.Model(results, [parameter], "graph"), xml)
    return xml


def test_graphs_compute_the_same_from_the_shared_file(tmp_path: Path) -> None:
    other = _WEIGHT + 1
    graphs = {
        _write(tmp_path / "a.xml", _WEIGHT, other): (_WEIGHT, other),
        _write(tmp_path / "b.xml", other): (other,),
    }
    shared = tmp_path / "shared.bin"
    share_weights(list(graphs), shared)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.xml", "b.xml", "shared.bin"]
    x = np.random.default_rng(0).random((3, 8), dtype=np.float32)
    core = openvino.Core()
    for xml, weights in graphs.items():
        outputs = core.compile_model(core.read_model(xml, shared), "CPU", _FLOAT32)({"x": x})
        for index, weight in enumerate(weights):
            np.testing.assert_allclose(outputs[index], x @ weight, rtol=1e-4)


def test_equal_constants_are_written_once(tmp_path: Path) -> None:
    graphs = [_write(tmp_path / f"{name}.xml", _WEIGHT) for name in "abc"]
    share_weights(graphs, tmp_path / "shared.bin")
    assert (tmp_path / "shared.bin").stat().st_size == _WEIGHT.nbytes


def test_a_graph_without_constants(tmp_path: Path) -> None:
    parameter = ops.parameter([2], np.float32, name="x")
    write_ir(openvino.Model([ops.relu(parameter)], [parameter], "graph"), tmp_path / "a.xml")
    share_weights([tmp_path / "a.xml", _write(tmp_path / "b.xml", _WEIGHT)], tmp_path / "s.bin")
    core = openvino.Core()
    compiled = core.compile_model(core.read_model(tmp_path / "a.xml", tmp_path / "s.bin"), "CPU")
    np.testing.assert_array_equal(compiled(np.array([-1, 2], np.float32))[0], [0, 2])


def test_an_unknown_spelling_is_an_error(tmp_path: Path) -> None:
    xml = _write(tmp_path / "a.xml", _WEIGHT)
    xml.write_text(xml.read_text().replace(' size="', ' bytes="'))
    with pytest.raises(ValueError, match=r"a\.xml has 1 constants, and 0 with offset and size"):
        share_weights([xml], tmp_path / "shared.bin")
