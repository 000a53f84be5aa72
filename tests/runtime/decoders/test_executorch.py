"""Decoders in ExecuTorch's runtime, against eager `generate`."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.backends.tiny_models import tiny_gemma3, tiny_qwen3
from model_export.runtime.errors import InputError
from runtime.decoders.decoder_cases import (
    CACHE_LENGTH,
    STATIC,
    check_cache_shapes,
    check_generation,
    check_refusals,
    check_reorder,
    make_artifact,
)


def test_growing_cache(tmp_path: Path) -> None:
    artifact = make_artifact(tiny_qwen3(), "executorch", tmp_path)
    check_generation(artifact)
    check_reorder(artifact)
    check_cache_shapes(artifact, (6, 7, 8))
    check_refusals(artifact)
    # The default bounds of docs/executorch.md, for a model of 256 positions.
    decoder = artifact.decoder()
    decoder.start(4, {}, 256)
    with pytest.raises(InputError, match="at most 4 sequences at once, not 5"):
        decoder.start(5, {}, 8)
    with pytest.raises(InputError, match="at most 256 positions, not 257"):
        decoder.start(1, {}, 257)


def test_static_cache(tmp_path: Path) -> None:
    artifact = make_artifact(tiny_qwen3(), "executorch", tmp_path, generation_config=STATIC)
    check_generation(artifact)
    check_reorder(artifact)
    check_cache_shapes(artifact, (CACHE_LENGTH,) * 3)


def test_sliding_window(tmp_path: Path) -> None:
    check_generation(make_artifact(tiny_gemma3(), "executorch", tmp_path))
