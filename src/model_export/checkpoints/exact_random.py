"""Random numbers whose bits are the same on every machine, CPU level and thread count.

`torch.Tensor.normal_` gives other numbers on AVX2 than on AVX-512 (torch 2.12.0), and so does
everything that passes through a vectorised `log` or `cos`. Here numbers are integers of Philox
4x64-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011), scaled by
operations that IEEE 754 rounds exactly: one addition or multiplication at a time, no fusing.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator

import numpy as np

_CHUNK = 1 << 20
_LANE = np.uint64(0x0000FFFF0000FFFF)
_LOW = np.uint64(0xFFFFFFFF)

# A sum of four independent uniform integers of 16 bits: its mean and standard deviation.
_SUM_MEAN = 2 * 65535
_SUM_STD = math.sqrt((2**32 - 1) / 3)


class Stream:
    """The random numbers that belong to one name under one seed.

    The Philox key is the first 16 bytes of SHA-256 of `SEED:NAME` as a little-endian number, the
    counter starts at 0. Each draw goes on where the last one stopped.
    """

    def __init__(self, seed: int, name: str) -> None:
        digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
        self._bits = np.random.Philox(key=int.from_bytes(digest[:16], "little"))

    def normal(self, count: int, mean: float, std: float) -> np.ndarray:
        """`count` float32 numbers of that mean and standard deviation, one 64-bit draw each.

        The distribution is Irwin-Hall of four 16-bit numbers: bell-shaped, bounded at 3.46
        standard deviations, excess kurtosis -0.3. Good for weights, not for statistics.
        """
        scale, shift = np.float32(std / _SUM_STD), np.float32(mean)
        return _filled(count, lambda size: self._sums(size) * scale + shift)

    def truncated_normal(
        self, count: int, mean: float, std: float, low: float, high: float
    ) -> np.ndarray:
        """Like `normal`, with each number outside [low, high] drawn again.

        Raises ValueError if hardly any number could fall inside.
        """
        if not (low < high and low < mean + 3 * std and high > mean - 3 * std):
            raise ValueError(f"no normal numbers of mean {mean} and std {std} in [{low}, {high}]")

        def draw(size: int) -> np.ndarray:
            values = self.normal(size, mean, std)
            while (outside := np.flatnonzero((values < low) | (values > high))).size:
                values[outside] = self.normal(outside.size, mean, std)
            return values

        return _filled(count, draw)

    def uniform(self, count: int, low: float, high: float) -> np.ndarray:
        """`count` float32 numbers in [low, high], in 2**24 equal steps, one 64-bit draw each."""
        step = (high - low) / 2**24

        def draw(size: int) -> np.ndarray:
            steps = (self._bits.random_raw(size) >> np.uint64(40)).astype(np.float64)
            return (steps * step + low).astype(np.float32)

        return _filled(count, draw)

    def _sums(self, size: int) -> np.ndarray:
        """Sums of the four 16-bit numbers of each draw, centred, as float32 (exact)."""
        raw = self._bits.random_raw(size)
        lanes = (raw & _LANE) + ((raw >> np.uint64(16)) & _LANE)
        sums = (lanes & _LOW) + (lanes >> np.uint64(32))
        return (sums.astype(np.int64) - _SUM_MEAN).astype(np.float32)


def _filled(count: int, draw: Callable[[int], np.ndarray]) -> np.ndarray:
    values = np.empty(count, np.float32)
    for part in _parts(count):
        values[part] = draw(part.stop - part.start)
    return values


def _parts(count: int) -> Iterator[slice]:
    for start in range(0, count, _CHUNK):
        yield slice(start, min(start + _CHUNK, count))
