"""bfloat16 at the border to numpy, against bits that IEEE 754 gives."""

from __future__ import annotations

import numpy as np

from model_export.runtime.graphs.bfloat16 import from_bits, to_bits


def test_values_and_their_bits() -> None:
    values = np.array([0.0, -0.0, 1.0, -2.0, 1 / 3, np.inf, 3.0e38], np.float32)
    # 3.0e38 is nearest to 0x7F62: 1.765625 * 2^127.
    bits = [0x0000, 0x8000, 0x3F80, 0xC000, 0x3EAB, 0x7F80, 0x7F62]
    assert to_bits(values).tolist() == bits
    assert from_bits(np.array(bits, np.uint16))[[2, 3, 4]].tolist() == [1.0, -2.0, 0.333984375]


def test_ties_go_to_even_and_overflow_to_infinity() -> None:
    # 1 + 2^-8 and 1 + 3 * 2^-8 lie halfway between two neighbours.
    halves = np.array([1 + 2**-8, 1 + 3 * 2**-8, np.finfo(np.float32).max], np.float32)
    assert to_bits(halves).tolist() == [0x3F80, 0x3F82, 0x7F80]


def test_nan_stays_nan() -> None:
    # The payload is all in the lower half: rounding alone would make infinity of it.
    nan = np.array([0x7F800001], np.uint32).view(np.float32)
    assert np.isnan(from_bits(to_bits(nan))).all()


def test_scalars_and_views_keep_their_shape() -> None:
    assert to_bits(np.array(1.0, np.float32)).shape == ()
    assert to_bits(np.ones((4, 6), np.float32)[:, ::2].T).shape == (3, 4)
