"""Graphs in ExecuTorch's runtime, against the eager models."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from exporter.backends.tiny_models import HEAD_DIM, KV_HEADS
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
    _check_that_empty_strides_end_the_process(tmp_path / component.record.file)


_EMPTY_CACHE = f"""
import sys
import numpy, torch
from executorch.runtime import Runtime

method = Runtime.get().load_program(sys.argv[1]).load_method("forward")
ids = torch.ones(3, 4, dtype=torch.int64)
empty = torch.from_numpy(numpy.zeros((3, {KV_HEADS}, 0, {HEAD_DIM}), numpy.float32))
method.execute([ids, ids, ids, empty, empty, empty, empty])
"""


def _check_that_empty_strides_end_the_process(path: Path) -> None:
    """Once this fails, `to_tensor` can share an array's memory (executorch 1.3.1)."""
    result = subprocess.run(
        [sys.executable, "-c", _EMPTY_CACHE, str(path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == -signal.SIGABRT
    assert "invalid strides for dim 0" in result.stderr + result.stdout


def test_static_cache_is_written_to_a_copy(tmp_path: Path) -> None:
    settings = {"cache_implementation": "static", "max_cache_len": 32}
    check_inputs_stay(export_decode("executorch", tmp_path, generation_config=settings), 32)
