"""The ONNX targets in ONNX Runtime, against the eager models."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray

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


def _session(target: str, name: str) -> onnxruntime.InferenceSession:
    folder, record = component(target, name)
    return onnxruntime.InferenceSession(folder / record.file, providers=["CPUExecutionProvider"])


def _decoder(target: str) -> Callable[[int], Step]:
    _, record = component(target, "decode")
    session = _session(target, "decode")
    names = [output.name for output in session.get_outputs()]

    def make_step(batch: int) -> Step:
        cache = {
            tensor.name: np.zeros(cache_shape(record, tensor.name, batch), np.float32)
            for tensor in record.inputs
            if tensor.name.startswith("input.")
        }

        def step(ids: IntArray, mask: IntArray, positions: IntArray) -> NDArray[np.float32]:
            feeds = {"input_ids": ids, "attention_mask": mask, "position_ids": positions, **cache}
            outputs = dict(zip(names, session.run(None, feeds), strict=True))
            for name in cache:
                cache[name] = outputs[name.replace("input.", "output.", 1)]
            return np.asarray(outputs["logits"])

        return step

    return make_step


@pytest.mark.parametrize("texts", [[PROMPT], PROMPTS], ids=["one", "left-padded"])
def test_smollm2_says_what_the_eager_model_says(texts: list[str]) -> None:
    said = check_generation("smollm2_onnx", "smollm2", texts, _decoder("smollm2_onnx"))
    assert "Paris" in said


def test_smollm2_brings_its_tokenizer_and_configs() -> None:
    check_travelling_files("smollm2_onnx")


@pytest.mark.parametrize("batch", [1, 3])
def test_random_qwen3(batch: int) -> None:
    target = "qwen3_tiny_onnx"
    check_random_generation(target, "qwen3_tiny", _decoder(target), batch)


def test_minilm_embeds() -> None:
    session = _session("minilm_onnx", "model")
    check_embeddings("minilm_onnx", lambda inputs: session.run(["last_hidden_state"], inputs)[0])
