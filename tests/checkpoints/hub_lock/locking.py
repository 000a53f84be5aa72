"""A repository of the hub that the tests of this folder lock, and what they expect of a refusal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from model_export.checkpoint_ask import CheckpointAsk
from model_export.checkpoint_lock import LockedCheckpoint
from model_export.checkpoints.hub_lock_errors import HubLockError

CONFIG = b'{"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"]}\n'
WEIGHTS = bytes(range(256)) * 1000
FILES = {
    "README.md": b"# Tiny\n",
    "config.json": CONFIG,
    "tokenizer.json": b"{}",
    "model.safetensors": WEIGHTS,
    "pytorch_model.bin": b"pickle",
}
TINY = "acme/tiny"
ASK = CheckpointAsk(TINY)
TOKEN = "hf_secretOfTheTest"

Lock = Callable[..., LockedCheckpoint]


def refused(kind: type[HubLockError], lock: Lock, **changes: Any) -> str:
    """The message that `lock` fails with: one line, in which nothing is secret."""
    with pytest.raises(kind) as caught:
        lock(**changes)
    message = str(caught.value)
    assert message.isprintable() and len(message) < 500
    assert TOKEN not in message and "signature" not in message
    return message
