"""Decoders in torch, against eager `generate`."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.backends.tiny_models import left_padded, tiny_bart, tiny_gemma3, tiny_qwen3
from model_export.runtime.errors import ArtifactError
from runtime.decoders.decoder_cases import (
    CACHE_LENGTH,
    STATIC,
    check_cache_shapes,
    check_encoder_decoder,
    check_generation,
    check_refusals,
    check_reorder,
    check_unpadded_state_space,
    make_artifact,
    tiny_mamba,
)


@pytest.mark.parametrize(
    ("generation_config", "lengths"),
    [({}, (6, 7, 8)), (STATIC, (CACHE_LENGTH,) * 3)],
    ids=["growing", "static"],
)
def test_multi_token_decode(
    tmp_path: Path, generation_config: dict[str, object], lengths: tuple[int, ...]
) -> None:
    artifact = make_artifact(tiny_qwen3(), "dynamo", tmp_path, generation_config=generation_config)
    check_generation(artifact)
    check_reorder(artifact)
    check_cache_shapes(artifact, lengths)
    check_refusals(artifact)


@pytest.mark.parametrize("generation_config", [{}, STATIC], ids=["growing", "static"])
def test_sliding_window(tmp_path: Path, generation_config: dict[str, object]) -> None:
    artifact = make_artifact(tiny_gemma3(), "dynamo", tmp_path, generation_config=generation_config)
    check_generation(artifact)
    if generation_config:
        (tmp_path / "config.json").unlink()
        with pytest.raises(ArtifactError, match="needs `sliding_window`"):
            check_generation(artifact)


@pytest.mark.parametrize("generation_config", [{}, STATIC], ids=["growing", "static"])
def test_prefill_and_single_token_decode(
    tmp_path: Path, generation_config: dict[str, object]
) -> None:
    artifact = make_artifact(
        tiny_qwen3(),
        "dynamo",
        tmp_path,
        multi_token_decode=False,
        generation_config=generation_config,
    )
    assert [record.name for record in artifact.manifest.components] == ["prefill", "decode"]
    check_generation(artifact)


def test_encoder_decoder(tmp_path: Path) -> None:
    check_encoder_decoder(make_artifact(tiny_bart(), "dynamo", tmp_path))


def test_state_space(tmp_path: Path) -> None:
    artifact = make_artifact(
        tiny_mamba(), "dynamo", tmp_path, inputs=left_padded(2, 8, 0), multi_token_decode=False
    )
    check_unpadded_state_space(artifact)
