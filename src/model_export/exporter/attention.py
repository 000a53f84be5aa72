"""Attention implementations that a checkpoint's config names and no graph can have.

FlashAttention, FlexAttention and kernels of the hub are the same function on other hardware: the
model is exported with the engine's default instead, sdpa, or eager where it has no sdpa.
"""

from __future__ import annotations

from typing import Any

from transformers import PreTrainedConfig

# None: the engine chooses.
_EXPORTABLE = (None, "eager", "sdpa")


def drop_unexportable_attention(config: PreTrainedConfig, name: str = "") -> dict[str, str]:
    """Leave the choice to the engine wherever `config`, or a part of it, names another attention.

    Returns what was named: the part (`text_config`; "" is the whole) -> the implementation.
    """
    dropped = {}
    for part in config.sub_configs:
        below: Any = getattr(config, part, None)
        if isinstance(below, PreTrainedConfig):
            dropped.update(drop_unexportable_attention(below, f"{name}.{part}".lstrip(".")))
    named = config._attn_implementation
    if named not in _EXPORTABLE:
        dropped[name] = str(named)
        # The key "" alone: the setter hands anything else on to the parts.
        config._attn_implementation = {"": None}
    return dropped
