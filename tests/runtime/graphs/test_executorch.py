"""Graphs in ExecuTorch's runtime, against the eager models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from exporter.backends.tiny_models import HEAD_DIM, KV_HEADS
from model_export.runtime.graphs.executorch import open_method
from model_export.runtime.graphs.torch_arrays import to_tensor
from runtime.graphs.graph_cases import (
    Component,
    check_cache_travels,
    check_damage,
    check_inputs_stay,
    check_plain,
    check_wrong_inputs,
    export_bert,
    export_decode,
)


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Component:
    return export_bert("executorch", tmp_path_factory.mktemp("bert"))


def test_plain(bert: Component) -> None:
    check_plain(bert, 1e-5)


def test_wrong_inputs(bert: Component) -> None:
    check_wrong_inputs(bert)


def test_damage(bert: Component, tmp_path: Path) -> None:
    check_damage(bert, tmp_path)


def test_growing_cache_travels(tmp_path: Path) -> None:
    component = export_decode("executorch", tmp_path)
    check_cache_travels(component)
    _check_empty_strides(component)


def _check_empty_strides(component: Component) -> None:
    """Once this fails, `to_tensor` can share an array's memory (executorch 1.3.1)."""
    method = open_method(component.folder, component.record)
    empty = np.zeros((3, KV_HEADS, 0, HEAD_DIM), np.float32)
    ids = torch.ones(3, 4, dtype=torch.int64)
    with pytest.raises(RuntimeError):
        method.execute([ids, ids, ids, *[torch.from_numpy(empty)] * 4])
    method.execute([ids, ids, ids, *[to_tensor(empty, "float32")] * 4])


def test_static_cache_is_written_to_a_copy(tmp_path: Path) -> None:
    settings = {"cache_implementation": "static", "max_cache_len": 32}
    check_inputs_stay(export_decode("executorch", tmp_path, generation_config=settings), 32)
