"""Graphs in OpenVINO, against the eager models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import openvino
import pytest
import torch
from openvino import opset13

from runtime.graphs.graph_cases import (
    Component,
    check_damage,
    check_plain,
    check_wrong_inputs,
    export_bert,
)


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Component:
    return export_bert("openvino", tmp_path_factory.mktemp("bert"))


def test_plain(bert: Component) -> None:
    check_plain(bert, 1e-5)


def test_wrong_inputs(bert: Component) -> None:
    check_wrong_inputs(bert)


def test_damage(bert: Component, tmp_path: Path) -> None:
    check_damage(bert, tmp_path)


def test_bfloat16_comes_out_as_float32(tmp_path: Path) -> None:
    # Three significant digits, and hidden states up to 3.
    check_plain(export_bert("openvino", tmp_path, torch.bfloat16), 3e-2)


def test_openvino_still_hands_out_an_input_as_an_output() -> None:
    """Once this fails, `put` can set tensors instead of copying into them (OpenVINO 2026.3.1)."""
    given = opset13.parameter([-1, 32], np.float32, name="given")
    given.output(0).set_names({"given"})
    model = openvino.Model([opset13.result(given, name="same")], [given], "identity")
    request = openvino.Core().compile_model(model, "CPU").create_infer_request()
    tensor = openvino.Tensor(np.ones((2, 32), np.float32))
    request.set_tensor("given", tensor)
    request.infer()
    result = request.get_output_tensor(0)
    assert result.data.ctypes.data == tensor.data.ctypes.data


def test_openvino_still_calls_bfloat16_float16() -> None:
    """Once this fails, bfloat16 needs no reading of bits (OpenVINO 2026.3.1)."""
    tensor = openvino.Tensor(openvino.Type.bf16, openvino.Shape([2]))
    assert tensor.data.dtype == np.float16
