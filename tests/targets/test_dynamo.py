"""The torch.export targets, loaded from their files, against the eager models."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from model_export.runtime.graphs.saved_program import empty_cache, load
from targets.eager import (
    PROMPT,
    PROMPTS,
    IntArray,
    Step,
    check_embeddings,
    check_generation,
    check_random_generation,
    check_travelling_files,
    component,
)


def _decoder(target: str) -> Callable[[int], Step]:
    folder, record = component(target, "decode")
    program = load(folder / record.file)
    forward = program.module()

    def make_step(batch: int) -> Step:
        cache = empty_cache(program, batch)

        def step(ids: IntArray, mask: IntArray, positions: IntArray) -> NDArray[np.float32]:
            nonlocal cache
            with torch.no_grad():
                output = forward(
                    input_ids=torch.from_numpy(ids),
                    attention_mask=torch.from_numpy(mask),
                    position_ids=torch.from_numpy(positions),
                    cache=cache,
                )
            cache = output.cache
            return np.asarray(output.logits.numpy())

        return step

    return make_step


@pytest.mark.parametrize("texts", [[PROMPT], PROMPTS], ids=["one", "left-padded"])
def test_smollm2_says_what_the_eager_model_says(texts: list[str]) -> None:
    said = check_generation("smollm2_dynamo", "smollm2", texts, _decoder("smollm2_dynamo"))
    assert "Paris" in said


def test_smollm2_brings_its_tokenizer_and_configs() -> None:
    check_travelling_files("smollm2_dynamo")


@pytest.mark.parametrize("batch", [1, 3])
def test_random_qwen3(batch: int) -> None:
    target = "qwen3_tiny_dynamo"
    check_random_generation(target, "qwen3_tiny", _decoder(target), batch)


def test_minilm_embeds() -> None:
    folder, record = component("minilm_dynamo", "model")
    forward = load(folder / record.file).module()

    def hidden(inputs: dict[str, IntArray]) -> NDArray[np.float32]:
        with torch.no_grad():
            output = forward(**{name: torch.from_numpy(array) for name, array in inputs.items()})
        return np.asarray(output.last_hidden_state.numpy())

    check_embeddings("minilm_dynamo", hidden)
