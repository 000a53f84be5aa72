"""The `generate` of transformers, timed by a streamer."""

from __future__ import annotations

from typing import Any

import torch
from benchmarks.decode_child import Clock, Generate, Task
from transformers import PreTrainedTokenizerFast, TextStreamer


class _Ticking(TextStreamer):
    """Makes text of the tokens as they come; `generate` puts the prompt first, then each token."""

    def __init__(self, clock: Clock, tokenizer: PreTrainedTokenizerFast) -> None:
        super().__init__(tokenizer, skip_prompt=True)
        self._clock = clock

    def put(self, value: torch.Tensor) -> None:
        if not self.next_tokens_are_prompt:
            self._clock.tick()
        super().put(value)

    def on_finalized_text(self, text: str, stream_end: bool = False) -> None:
        """Nobody reads it."""


def generate_with(model: Any, task: Task) -> Generate:
    """Greedy generation with `model`, anything that has the `generate` of transformers."""
    # AutoTokenizer of transformers 4.57.6 doesn't know the class that transformers 5 writes
    # (`_check_tokenizer` of decode_optimum.py).
    tokenizer = PreTrainedTokenizerFast.from_pretrained(task.folder)
    inputs = tokenizer(task.prompt, return_tensors="pt", return_token_type_ids=False)

    def generate(clock: Clock) -> list[int]:
        with torch.inference_mode():
            output = model.generate(
                **inputs,
                max_new_tokens=task.new_tokens,
                do_sample=False,
                streamer=_Ticking(clock, tokenizer),
            )
        tokens: list[int] = output[0, inputs["input_ids"].shape[1] :].tolist()
        return tokens

    return generate
