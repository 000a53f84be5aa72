"""Eager transformers on the checkpoint: a contender of `benchmarks:decode`."""

from __future__ import annotations

import torch
from benchmarks.decode_child import Generate, Task, contend
from benchmarks.decode_generate import generate_with
from transformers import AutoModelForCausalLM


def load_eager(task: Task) -> Generate:
    """Load the checkpoint in float32."""
    model = AutoModelForCausalLM.from_pretrained(task.folder, dtype=torch.float32)
    return generate_with(model.eval(), task)


if __name__ == "__main__":
    contend(load_eager)
