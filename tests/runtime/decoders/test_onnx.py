"""Decoders in ONNX Runtime, against eager `generate`."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.backends.tiny_models import left_padded, tiny_bart, tiny_gemma3, tiny_qwen3
from model_export.runtime.errors import InputError
from runtime.decoders.decoder_cases import (
    CACHE_LENGTH,
    STATIC,
    Artifact,
    check_encoder_decoder,
    check_generation,
    check_growing_cache,
    check_static_cache,
    check_unpadded_state_space,
    make_artifact,
    tiny_mamba,
)


@pytest.fixture(scope="module")
def growing(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return make_artifact(tiny_qwen3(), "onnx", tmp_path_factory.mktemp("growing"))


@pytest.fixture(scope="module")
def static(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    folder = tmp_path_factory.mktemp("static")
    return make_artifact(tiny_qwen3(), "onnx", folder, generation_config=STATIC)


def test_growing_cache(growing: Artifact) -> None:
    check_growing_cache(growing)


def test_static_cache(static: Artifact) -> None:
    check_static_cache(static)


def test_static_cache_ends_at_its_length(static: Artifact) -> None:
    with pytest.raises(InputError, match=f"at most {CACHE_LENGTH} positions, not 33"):
        static.decoder().start(1, {}, CACHE_LENGTH + 1)


@pytest.mark.parametrize("generation_config", [{}, STATIC], ids=["growing", "static"])
def test_sliding_window(tmp_path: Path, generation_config: dict[str, object]) -> None:
    artifact = make_artifact(tiny_gemma3(), "onnx", tmp_path, generation_config=generation_config)
    check_generation(artifact)


def test_prefill_and_single_token_decode(tmp_path: Path) -> None:
    artifact = make_artifact(tiny_qwen3(), "onnx", tmp_path, multi_token_decode=False)
    assert [record.name for record in artifact.manifest.components] == ["prefill", "decode"]
    check_generation(artifact)


def test_encoder_decoder(tmp_path: Path) -> None:
    check_encoder_decoder(make_artifact(tiny_bart(), "onnx", tmp_path))


def test_state_space(tmp_path: Path) -> None:
    artifact = make_artifact(
        tiny_mamba(), "onnx", tmp_path, inputs=left_padded(2, 8, 0), multi_token_decode=False
    )
    check_unpadded_state_space(artifact)
