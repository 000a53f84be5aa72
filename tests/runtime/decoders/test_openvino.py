"""Decoders in OpenVINO, against eager `generate`."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.backends.tiny_models import (
    left_padded,
    tiny_bart,
    tiny_gemma3,
    tiny_qwen3,
)
from runtime.decoders.decoder_cases import (
    CACHE_LENGTH,
    STATIC,
    check_cache_shapes,
    check_encoder_decoder,
    check_generation,
    check_growing_cache,
    check_reorder,
    check_unpadded_state_space,
    make_artifact,
    tiny_mamba,
)


def test_growing_cache_as_state(tmp_path: Path) -> None:
    artifact = make_artifact(tiny_qwen3(), "openvino", tmp_path)
    check_growing_cache(artifact)


@pytest.mark.parametrize(
    ("generation_config", "lengths"),
    [({}, (6, 7, 8)), (STATIC, (CACHE_LENGTH,) * 3)],
    ids=["growing", "static"],
)
def test_cache_without_state(
    tmp_path: Path, generation_config: dict[str, object], lengths: tuple[int, ...]
) -> None:
    artifact = make_artifact(
        tiny_qwen3(),
        "openvino",
        tmp_path,
        {"stateful": False},
        generation_config=generation_config,
    )
    check_generation(artifact)
    check_reorder(artifact)
    check_cache_shapes(artifact, lengths)


def test_sliding_window(tmp_path: Path) -> None:
    check_generation(make_artifact(tiny_gemma3(), "openvino", tmp_path))


def test_encoder_decoder(tmp_path: Path) -> None:
    # As a state, the engine would give the cross attention the traced text's length.
    artifact = make_artifact(tiny_bart(), "openvino", tmp_path, {"stateful": False})
    check_encoder_decoder(artifact, (8, 8, 8))
    check_encoder_decoder(artifact, (13, 13, 13))


def test_state_space(tmp_path: Path) -> None:
    artifact = make_artifact(
        tiny_mamba(), "openvino", tmp_path, inputs=left_padded(2, 8, 0), multi_token_decode=False
    )
    check_unpadded_state_space(artifact)
