"""A LoRA adapter of the tiny Qwen3, as the files of a repository, and what it makes of the weights.

Python 3.9, because the plugin's tests serve it. Its numbers are eighths, so that the products with
them are exact, and a merged weight has the same bits wherever it is computed.
"""

from __future__ import annotations

import array
import json
import random
from collections.abc import Mapping

from hub.tiny_qwen3 import Weight, safetensors, tiny_weights

_RANK, _ALPHA = 2, 8
_TARGETS = ("q_proj", "down_proj")
CONFIG: Mapping[str, object] = {
    "base_model_name_or_path": "acme/tiny-qwen3",
    "inference_mode": True,
    "lora_alpha": _ALPHA,
    "peft_type": "LORA",
    "r": _RANK,
    "target_modules": list(_TARGETS),
    "task_type": "CAUSAL_LM",
}


def tiny_lora() -> dict[str, bytes]:
    """What peft's `save_pretrained` writes, and a tokenizer and a card beside it."""
    weights = {}
    for name in _changed():
        module = "base_model.model." + name[: -len(".weight")]
        weights[f"{module}.lora_A.weight"], weights[f"{module}.lora_B.weight"] = _factors(name)
    return {
        "README.md": b"# An adapter",
        "adapter_config.json": json.dumps(CONFIG, indent=2).encode(),
        "adapter_model.safetensors": safetensors(weights),
        "tokenizer_config.json": b"{}",
    }


def merged_weights() -> dict[str, Weight]:
    """The weights that the adapter changes, as they are with it: W + alpha / rank * B @ A."""
    merged = {}
    for name in _changed():
        base, (a, b) = tiny_weights()[name], _factors(name)
        rows, columns = base.shape
        values = array.array("f", base.values)
        for row in range(rows):
            for column in range(columns):
                product = sum(
                    b.values[row * _RANK + inner] * a.values[inner * columns + column]
                    for inner in range(_RANK)
                )
                values[row * columns + column] += _ALPHA / _RANK * product
        merged[name] = Weight(base.shape, values)
    return merged


def _changed() -> list[str]:
    return [name for name in tiny_weights() if name.split(".")[-2] in _TARGETS]


def _factors(name: str) -> tuple[Weight, Weight]:
    """A and B for a weight."""
    rows, columns = tiny_weights()[name].shape
    draw = random.Random(f"adapter of {name}")

    def eighths(*shape: int) -> Weight:
        return Weight(
            shape,
            array.array("f", (draw.randint(-3, 3) / 8 for _ in range(shape[0] * shape[1]))),
        )

    return eighths(_RANK, columns), eighths(rows, _RANK)
