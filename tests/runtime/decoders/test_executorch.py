"""Decoders in ExecuTorch's runtime, against eager `generate`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from exporter.backends.tiny_models import HEAD_DIM, KV_HEADS, tiny_gemma3, tiny_qwen3
from model_export.runtime.errors import InputError
from runtime.decoders.decoder_cases import (
    CACHE_LENGTH,
    STATIC,
    check_cache_shapes,
    check_generation,
    check_growing_cache,
    check_reorder,
    make_artifact,
)
from runtime.graphs.graph_cases import check_inputs_stay
from verifier.wrong_modules import one_layer_decoder


def test_growing_cache(tmp_path: Path) -> None:
    artifact = make_artifact(tiny_qwen3(), "executorch", tmp_path)
    check_growing_cache(artifact)
    _check_that_empty_strides_end_the_process(tmp_path / artifact.decode().record.file)
    # The default bounds of docs/executorch.md, for a model of 256 positions.
    decoder = artifact.decoder()
    decoder.start(4, {}, 256)
    with pytest.raises(InputError, match="at most 4 sequences at once, not 5"):
        decoder.start(5, {}, 8)
    with pytest.raises(InputError, match="at most 256 positions, not 257"):
        decoder.start(1, {}, 257)


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


def test_static_cache(tmp_path: Path) -> None:
    # Layers are lowered one like the other, at twenty seconds each.
    artifact = make_artifact(one_layer_decoder(), "executorch", tmp_path, generation_config=STATIC)
    check_generation(artifact)
    check_reorder(artifact)
    check_cache_shapes(artifact, (CACHE_LENGTH,) * 3)
    check_inputs_stay(artifact.decode(), CACHE_LENGTH)


def test_sliding_window(tmp_path: Path) -> None:
    check_generation(make_artifact(tiny_gemma3(), "executorch", tmp_path))
