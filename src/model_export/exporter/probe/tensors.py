"""The tensors of a probe, gathered while it is recorded and written in one file."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import save_file


class ProbeTensors:
    """Tensors by key; half precision is kept as float32, which numpy can read."""

    def __init__(self) -> None:
        self._tensors: dict[str, torch.Tensor] = {}

    def add(self, tensors: dict[str, torch.Tensor]) -> dict[str, str]:
        """Copy `tensors`; return the key of each under its name."""
        keys = {}
        for name, tensor in tensors.items():
            keys[name] = str(len(self._tensors))
            wide = tensor.float() if tensor.dtype in (torch.bfloat16, torch.float16) else tensor
            self._tensors[keys[name]] = wide.detach().clone().contiguous()
        return keys

    def shape(self, key: str) -> tuple[int, ...]:
        """The shape of the tensor of a key."""
        return tuple(self._tensors[key].shape)

    def write(self, path: Path) -> None:
        """Write all of them as safetensors."""
        save_file(self._tensors, path)
