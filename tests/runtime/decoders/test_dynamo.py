"""Decoders in torch, against eager `generate`."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from exporter.backends.tiny_models import (
    left_padded,
    positions_of,
    tiny_bart,
    tiny_gemma3,
    tiny_qwen3,
)
from model_export.runtime.errors import ArtifactError
from model_export.runtime.graphs.saved_program import empty_cache, load
from runtime.decoders.decoder_cases import (
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
    return make_artifact(tiny_qwen3(), "dynamo", tmp_path_factory.mktemp("growing"))


@pytest.fixture(scope="module")
def bart(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return make_artifact(tiny_bart(), "dynamo", tmp_path_factory.mktemp("bart"))


def test_growing_cache(growing: Artifact) -> None:
    check_growing_cache(growing)


def test_torch_still_refuses_short_prompts_to_an_empty_cache(growing: Artifact) -> None:
    """Once this fails, `Call` can keep the guards of a program (torch 2.12.0)."""
    component = growing.decode()
    program = load(component.folder / component.record.file)
    inputs = left_padded(1, 3, 0)
    inputs["position_ids"] = positions_of(inputs["attention_mask"])
    with pytest.raises(AssertionError, match="Guard failed"):
        program.module()(**inputs, cache=empty_cache(program, 1))
    component.graph()  # Loads without them.


def test_static_cache(tmp_path: Path) -> None:
    artifact = make_artifact(tiny_qwen3(), "dynamo", tmp_path, generation_config=STATIC)
    check_static_cache(artifact)


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


def test_encoder_decoder(bart: Artifact) -> None:
    check_encoder_decoder(bart)


def test_torch_still_warns_with_too_few_arguments(bart: Artifact) -> None:
    """Once this fails, `load` needn't silence the warning (torch 2.12.0)."""
    path = bart.folder / bart.decode().record.file
    load(path)
    # pytest raises what logging would print.
    with pytest.raises(TypeError, match="not enough arguments for format string"):
        torch.export.load(str(path))


def test_state_space(tmp_path: Path) -> None:
    artifact = make_artifact(
        tiny_mamba(), "dynamo", tmp_path, inputs=left_padded(2, 8, 0), multi_token_decode=False
    )
    check_unpadded_state_space(artifact)
