"""What is measured between two arrays, by hand-computed numbers."""

from __future__ import annotations

import numpy as np
import pytest

from model_export.verifier.differences import agreement, divergence, measure, not_finite


def test_the_largest_difference_says_where_and_what() -> None:
    expected = np.array([[1.0, -4.0], [2.0, 0.5]], np.float32)
    got = np.array([[1.0, -4.5], [2.25, 0.5]], np.float32)
    difference = measure(expected, got, None)
    assert (difference.max_abs, difference.index) == (0.5, (0, 1))
    assert (difference.expected, difference.got) == (-4.0, -4.5)
    assert (difference.scale, difference.max_rel) == (4.0, 0.125)
    # (1 + 18 + 4.5 + 0.25) / sqrt(21.25 * 26.5625)
    assert difference.cosine == pytest.approx(23.75 / np.sqrt(21.25 * 26.5625))


def test_padded_positions_count_for_nothing() -> None:
    expected = np.zeros((1, 3, 2), np.float32)
    got = expected.copy()
    got[0, 0] = np.nan
    got[0, 2] = 7.0
    real = np.array([[[False], [True], [False]]])
    assert measure(expected, got, real).max_abs == 0.0
    real[0, 2] = True
    assert measure(expected, got, real).max_abs == 7.0


def test_a_scaled_output_isn_t_hidden_by_its_cosine() -> None:
    expected = np.arange(1.0, 9.0)
    difference = measure(expected, expected * 1.01, None)
    assert difference.cosine == pytest.approx(1.0)
    assert difference.max_rel == pytest.approx(0.01)


def test_infinities_have_to_be_where_they_are_expected() -> None:
    expected = np.array([0.0, -np.inf, np.nan])
    assert measure(expected, expected.copy(), None).max_abs == 0.0
    assert measure(expected, np.array([0.0, 3.0, np.nan]), None).max_abs == np.inf
    assert measure(expected, np.array([0.0, np.inf, np.nan]), None).max_abs == np.inf
    assert not_finite(expected, np.array([np.nan, -np.inf, np.nan])) == (0,)
    assert not_finite(expected, expected) is None


def test_a_tie_that_rounding_decides_is_no_disagreement() -> None:
    expected = np.array([[0.0, 1.0, 0.9], [3.0, 1.0, 0.0]])
    got = np.array([[0.0, 0.95, 0.96], [0.0, 1.0, 0.0]])
    assert agreement(expected, got, None, 0.06) == 0.5
    assert agreement(expected, got, None, 0.01) == 0.0
    assert agreement(expected, got, np.array([[True], [False]]), 0.06) == 1.0


def test_divergence_of_two_distributions() -> None:
    p, q = np.array([0.5, 0.25, 0.25]), np.array([0.25, 0.5, 0.25])
    found = divergence(np.log(p).astype(np.float32) + 3, np.log(q).astype(np.float32) - 1)
    # 0.5 ln 2 + 0.25 ln 0.5
    assert found == pytest.approx(0.25 * np.log(2), abs=1e-6)
