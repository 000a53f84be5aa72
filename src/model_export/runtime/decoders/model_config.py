"""What a decode loop needs of the `config.json` beside the graphs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CONFIG_FILE = "config.json"


@dataclass(frozen=True)
class ModelConfig:
    """Sizes of a text model; None where its config doesn't have them.

    `window` is how many positions sliding attention sees, the current one included. The others are
    axes of a cache: heads and head_dim of keys and values, `conv_kernel` of a state-space model's
    `conv_states` [batch, channels, conv_kernel].
    """

    window: int | None = None
    heads: int | None = None
    head_dim: int | None = None
    conv_kernel: int | None = None

    def cache_size(self, part: str, axis: int) -> int | None:
        """The size of a cache tensor's `axis`; `part` is the last word of its name."""
        if part in ("keys", "values"):
            return {1: self.heads, 3: self.head_dim}.get(axis)
        return self.conv_kernel if "conv_states" in part and axis == 2 else None


def read_model_config(folder: Path) -> ModelConfig:
    """The sizes in `folder`'s config; none of them if it has no config."""
    path = folder / CONFIG_FILE
    if not path.is_file():
        return ModelConfig()
    config = json.loads(path.read_text(encoding="utf-8"))
    config = config.get("text_config") or config
    return ModelConfig(
        window=config.get("sliding_window") if config.get("use_sliding_window", True) else None,
        heads=config.get("num_key_value_heads") or config.get("num_attention_heads"),
        head_dim=config.get("head_dim") or _head_dim(config),
        conv_kernel=config.get("conv_kernel"),
    )


def _head_dim(config: Mapping[str, Any]) -> int | None:
    """What models without a `head_dim` of their own do."""
    hidden, heads = config.get("hidden_size"), config.get("num_attention_heads")
    return hidden // heads if hidden and heads else None
