from __future__ import annotations

import hashlib
import math
import struct

import numpy as np
import pytest

from model_export.checkpoints.exact_random import Stream

_MASK = 2**64 - 1


def philox_4x64(seed: int, name: str, count: int) -> list[int]:
    """The first 64-bit words of a stream, from the paper's description of Philox 4x64-10."""
    key = struct.unpack("<2Q", hashlib.sha256(f"{seed}:{name}".encode()).digest()[:16])
    words: list[int] = []
    block = 0
    while len(words) < count:
        block += 1  # numpy increments the counter before it makes the first block.
        x, (k0, k1) = [block, 0, 0, 0], key
        for _ in range(10):
            p0, p1 = 0xD2E7470EE14C6C93 * x[0], 0xCA5A826395121157 * x[2]
            x = [(p1 >> 64) ^ x[1] ^ k0, p1 & _MASK, (p0 >> 64) ^ x[3] ^ k1, p0 & _MASK]
            k0, k1 = (k0 + 0x9E3779B97F4A7C15) & _MASK, (k1 + 0xBB67AE8584CAA73B) & _MASK
        words.extend(x)
    return words[:count]


def test_normal_numbers_are_sums_of_four_16_bit_integers() -> None:
    words = philox_4x64(5, "layer.weight", 1000)
    sums = [sum(word >> shift & 0xFFFF for shift in (0, 16, 32, 48)) for word in words]
    scale = np.float32(0.02 / math.sqrt((2**32 - 1) / 3))
    expected = [np.float32(total - 131070) * scale for total in sums]

    assert Stream(5, "layer.weight").normal(1000, 0.0, 0.02).tolist() == expected


def test_uniform_numbers_are_24_bit_integers() -> None:
    words = philox_4x64(-3, "x", 100)
    expected = [np.float32((word >> 40) * (2.0 / 2**24) - 1.0) for word in words]

    assert Stream(-3, "x").uniform(100, -1.0, 1.0).tolist() == expected


def test_a_stream_goes_on_across_draws_and_chunks() -> None:
    whole = Stream(0, "a").normal((1 << 20) + 7, 0.0, 1.0)
    stream = Stream(0, "a")
    parts = np.concatenate([stream.normal(1 << 20, 0.0, 1.0), stream.normal(7, 0.0, 1.0)])

    assert np.array_equal(whole, parts)


@pytest.mark.parametrize("other", [Stream(1, "a"), Stream(0, "b")], ids=["seed", "name"])
def test_another_seed_or_name_gives_other_numbers(other: Stream) -> None:
    assert not np.isin(Stream(0, "a").normal(8, 0.0, 1.0), other.normal(8, 0.0, 1.0)).any()


def test_moments() -> None:
    values = Stream(0, "a").normal(1_000_000, 0.5, 0.25).astype(np.float64)

    assert abs(values.mean() - 0.5) < 1e-3
    assert abs(values.std() - 0.25) < 1e-3
    assert np.abs(values - 0.5).max() < 0.25 * math.sqrt(12)


def test_truncation_draws_again() -> None:
    values = Stream(0, "a").truncated_normal(100_000, 0.0, 1.0, -2.0, 1.0)

    assert values.min() >= -2.0
    assert values.max() <= 1.0
    # Clamping would pile 16 % of the numbers up at the bound.
    assert np.mean(values > 0.99) < 0.01


def test_truncation_to_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="no normal numbers"):
        Stream(0, "a").truncated_normal(1, 0.0, 1.0, 5.0, 6.0)
