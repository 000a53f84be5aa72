"""bfloat16 as numpy can hold it: the upper half of a float32's bits."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def to_bits(array: NDArray[np.float32]) -> NDArray[np.uint16]:
    """The bits of the nearest bfloat16 of each float32, ties to even; NaN stays NaN."""
    bits = np.asarray(array, dtype=np.float32, order="C").view(np.uint32)
    rounded = bits + (np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1)))
    quiet = bits | np.uint32(0x00400000)
    chosen = np.where(np.isnan(array), quiet, rounded) >> np.uint32(16)
    return np.asarray(chosen, dtype=np.uint16)


def from_bits(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    """The float32 of exactly the same value."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
