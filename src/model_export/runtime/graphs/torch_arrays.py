"""Between numpy arrays and torch tensors, for the two runtimes that take tensors."""

from __future__ import annotations

import numpy as np
import torch

from model_export.runtime.graph import Array


def to_tensor(array: Array, dtype: str) -> torch.Tensor:
    """A contiguous copy of `array` as a tensor of the record's dtype."""
    # Filled, not wrapped: from_numpy gives an empty array strides of zero, for which ExecuTorch
    # 1.3.1 ends the process ("invalid strides for dim 0").
    tensor = torch.empty(array.shape, dtype=getattr(torch, array.dtype.name))
    tensor.numpy()[...] = array
    return tensor.to(torch.bfloat16) if dtype == "bfloat16" else tensor


def to_array(tensor: torch.Tensor) -> Array:
    """A copy of `tensor`; float32 for bfloat16."""
    detached = tensor.detach().to("cpu")
    if detached.dtype == torch.bfloat16:
        return np.asarray(detached.to(torch.float32).numpy())
    return np.array(detached.numpy())
