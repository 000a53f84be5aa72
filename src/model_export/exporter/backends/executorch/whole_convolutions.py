"""Products for convolutions that see all of their input at once, which ExecuTorch can't run in 3-D.

Upstream symptom (executorch 1.3.1): a Conv3d lowers, and the call of the program ends in "Expect
input tensor to be 3-D or 4-D, but got, 5" (0x12). Models that see videos make vectors of image
patches with one (Qwen2-VL), whose kernel is as large as a patch: a matrix product.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def whole_convolutions() -> Iterator[None]:
    """While the block traces: a Conv3d as large as its input is a product."""
    original = torch.nn.Conv3d.forward

    def forward(self: torch.nn.Conv3d, input: torch.Tensor) -> torch.Tensor:
        if not _sees_all(self, input):
            return original(self, input)
        vectors = torch.nn.functional.linear(input.flatten(1), self.weight.flatten(1), self.bias)
        return vectors[:, :, None, None, None]

    torch.nn.Conv3d.forward = forward
    try:
        yield
    finally:
        torch.nn.Conv3d.forward = original


def _sees_all(layer: torch.nn.Conv3d, input: torch.Tensor) -> bool:
    return (
        tuple(input.shape[2:]) == tuple(layer.kernel_size)
        and layer.groups == 1
        and not any(layer.padding)
        and set(layer.dilation) == {1}
    )
