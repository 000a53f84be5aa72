"""The `generate` of transformers, timed by a streamer."""

from __future__ import annotations

from typing import Any

import torch
from benchmarks.decode_child import Clock, Generate, Task
from transformers import PreTrainedTokenizerFast


class _Ticking:
    """A streamer: `generate` puts the prompt first, then each token."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._prompt = True

    def put(self, value: torch.Tensor) -> None:
        if not self._prompt:
            self._clock.tick()
        self._prompt = False

    def end(self) -> None:
        """Nothing to flush."""


def generate_with(model: Any, task: Task) -> Generate:
    """Greedy generation with `model`, anything that has the `generate` of transformers."""
    # AutoTokenizer of transformers 4.57.6 doesn't know the class that transformers 5 writes.
    tokenizer = PreTrainedTokenizerFast.from_pretrained(task.folder)
    inputs = tokenizer(task.prompt, return_tensors="pt", return_token_type_ids=False)

    def generate(clock: Clock) -> list[int]:
        with torch.inference_mode():
            output = model.generate(
                **inputs,
                max_new_tokens=task.new_tokens,
                do_sample=False,
                streamer=_Ticking(clock),
            )
        tokens: list[int] = output[0, inputs["input_ids"].shape[1] :].tolist()
        return tokens

    return generate
