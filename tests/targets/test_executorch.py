"""The ExecuTorch targets in ExecuTorch's runtime, against the eager models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from executorch.runtime import Runtime
from numpy.typing import NDArray

from model_export.manifest import ComponentRecord
from targets.eager import (
    PROMPT,
    PROMPTS,
    IntArray,
    Step,
    cache_shape,
    check_embeddings,
    check_generation,
    check_random_generation,
    check_travelling_files,
    component,
)


def _method(target: str, name: str) -> tuple[Any, ComponentRecord]:
    folder, record = component(target, name)
    return Runtime.get().load_program(folder / record.file).load_method("forward"), record


def _decoder(target: str) -> Callable[[int], Step]:
    method, record = _method(target, "decode")
    names = [tensor.name for tensor in record.inputs]
    outputs = [tensor.name for tensor in record.outputs]

    def make_step(batch: int) -> Step:
        cache = {
            name: torch.zeros(cache_shape(record, name, batch))
            for name in names
            if name.startswith("input.")
        }

        def step(ids: IntArray, mask: IntArray, positions: IntArray) -> NDArray[np.float32]:
            feeds = {
                "input_ids": torch.from_numpy(ids),
                "attention_mask": torch.from_numpy(mask),
                "position_ids": torch.from_numpy(positions),
                **cache,
            }
            # The runtime hands out views of its own memory.
            results = [result.clone() for result in method.execute([feeds[n] for n in names])]
            named = dict(zip(outputs, results, strict=True))
            for name in cache:
                cache[name] = named[name.replace("input.", "output.", 1)]
            return np.asarray(named["logits"].numpy())

        return step

    return make_step


@pytest.mark.parametrize("texts", [[PROMPT], PROMPTS], ids=["one", "left-padded"])
def test_smollm2_says_what_the_eager_model_says(texts: list[str]) -> None:
    said = check_generation("smollm2_executorch", "smollm2", texts, _decoder("smollm2_executorch"))
    assert "Paris" in said


def test_smollm2_brings_its_tokenizer_and_configs() -> None:
    check_travelling_files("smollm2_executorch")


@pytest.mark.parametrize("batch", [1, 3])
def test_random_qwen3(batch: int) -> None:
    target = "qwen3_tiny_executorch"
    check_random_generation(target, "qwen3_tiny", _decoder(target), batch)


def test_minilm_embeds() -> None:
    method, record = _method("minilm_executorch", "model")

    def hidden(inputs: dict[str, IntArray]) -> NDArray[np.float32]:
        feeds = [torch.from_numpy(inputs[tensor.name]) for tensor in record.inputs]
        outputs = dict(zip((t.name for t in record.outputs), method.execute(feeds), strict=True))
        return np.asarray(outputs["last_hidden_state"].clone().numpy())

    check_embeddings("minilm_executorch", hidden)
