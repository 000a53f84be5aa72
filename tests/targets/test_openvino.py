"""The OpenVINO targets in OpenVINO, against the eager models."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import openvino
import pytest
from numpy.typing import NDArray

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


def _compiled(target: str, name: str) -> openvino.CompiledModel:
    folder, record = component(target, name)
    core = openvino.Core()
    model = core.read_model(folder / record.file, folder / record.weights[0])
    # OpenVINO runs in bfloat16 where the CPU has it, unless told otherwise.
    return core.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})


def _decoder(target: str) -> Callable[[int], Step]:
    compiled = _compiled(target, "decode")

    def make_step(batch: int) -> Step:
        request = compiled.create_infer_request()

        def step(ids: IntArray, mask: IntArray, positions: IntArray) -> NDArray[np.float32]:
            result = request.infer(
                {
                    "input_ids": ids,
                    "attention_mask": mask,
                    "position_ids": positions,
                    "beam_idx": np.arange(batch, dtype=np.int32),
                }
            )
            return np.array(result["logits"])

        return step

    return make_step


@pytest.mark.parametrize("texts", [[PROMPT], PROMPTS], ids=["one", "left-padded"])
def test_smollm2_says_what_the_eager_model_says(texts: list[str]) -> None:
    said = check_generation("smollm2_openvino", "smollm2", texts, _decoder("smollm2_openvino"))
    assert "Paris" in said


def test_smollm2_brings_its_tokenizer_and_configs() -> None:
    check_travelling_files("smollm2_openvino")


@pytest.mark.parametrize("batch", [1, 3])
def test_random_qwen3(batch: int) -> None:
    target = "qwen3_tiny_openvino"
    check_random_generation(target, "qwen3_tiny", _decoder(target), batch)


def test_minilm_embeds() -> None:
    compiled = _compiled("minilm_openvino", "model")
    check_embeddings(
        "minilm_openvino", lambda inputs: np.array(compiled(inputs)["last_hidden_state"])
    )
