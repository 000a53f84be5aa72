"""Measures how far an array is from what was expected."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from model_export.runtime.graph import Array

# Below this, an output counts as zero: its largest value says nothing about its scale.
_ZERO = 1e-3


@dataclass(frozen=True)
class Difference:
    """The distance of two arrays of one shape over the positions that count.

    `max_abs` is the largest |got - expected| and `index` where it is, with both values. `scale` is
    the largest |expected|, at least 1e-3; `max_rel` is `max_abs / scale`. `cosine` is that of the
    two arrays as vectors; 1.0 where both are zero.
    """

    max_abs: float
    scale: float
    cosine: float
    index: tuple[int, ...]
    expected: float
    got: float

    @property
    def max_rel(self) -> float:
        return self.max_abs / self.scale


def measure(expected: Array, got: Array, real: NDArray[np.bool_] | None) -> Difference:
    """The difference of `got` to `expected` where `real` (broadcast to their shape) is true.

    Values that aren't finite are left out where both sides agree on them, and count as an infinite
    difference elsewhere. Memory: two float64 copies of the arrays (float32 for large ones would
    lose the sums).
    """
    reference, candidate = np.asarray(expected, np.float64), np.asarray(got, np.float64)
    counted = np.ones(reference.shape, bool)
    if real is not None:
        counted &= real
    same = (reference == candidate) | (np.isnan(reference) & np.isnan(candidate))
    with np.errstate(invalid="ignore"):
        distance = np.where(counted & ~same, np.abs(candidate - reference), 0.0)
    distance[np.isnan(distance)] = np.inf
    finite = counted & np.isfinite(reference) & np.isfinite(candidate)
    if distance.size == 0:
        return Difference(0.0, _ZERO, 1.0, (), 0.0, 0.0)
    flat = int(distance.argmax())
    index = tuple(int(i) for i in np.unravel_index(flat, distance.shape))
    reference_values, candidate_values = reference[finite], candidate[finite]
    return Difference(
        float(distance[index]),
        max(_ZERO, float(np.abs(reference_values).max(initial=0.0))),
        _cosine(reference_values, candidate_values),
        index,
        float(reference[index]),
        float(candidate[index]),
    )


def not_finite(expected: Array, got: Array) -> tuple[int, ...] | None:
    """The first index where `got` is NaN or infinite and `expected` is not."""
    if got.dtype.kind != "f":
        return None
    wrong = ~np.isfinite(got) & np.isfinite(expected)
    if not wrong.any():
        return None
    return tuple(int(i) for i in np.unravel_index(int(wrong.argmax()), wrong.shape))


def agreement(expected: Array, got: Array, real: NDArray[np.bool_] | None, allowed: float) -> float:
    """The share of positions whose arg max over the last axis is as good as the expected one.

    The arg max of `got` may be another where `expected` itself has both within twice `allowed`: a
    tie that rounding decides. `real` has the shape of the arrays without their last axis, or 1
    there. 1.0 where no position counts.
    """
    choice = got.argmax(-1)[..., None]
    margin = expected.max(-1) - np.take_along_axis(expected, choice, -1)[..., 0]
    agreeing = margin <= 2 * allowed
    if real is not None:
        agreeing = agreeing[np.broadcast_to(real[..., 0], agreeing.shape)]
    return float(agreeing.mean()) if agreeing.size else 1.0


def divergence(expected: NDArray[np.float32], got: NDArray[np.float32]) -> NDArray[np.float64]:
    """KL(expected || got) in nats over the last axis of two arrays of logits.

    sum p (log p - log q), with p and q the softmax of each.
    """
    log_p, log_q = _log_softmax(expected), _log_softmax(got)
    with np.errstate(invalid="ignore"):
        terms = np.where(np.isneginf(log_p), 0.0, np.exp(log_p) * (log_p - log_q))
    return np.asarray(terms.sum(-1), np.float64)


def _log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    shifted = logits.astype(np.float64) - logits.max(-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(-1, keepdims=True)), np.float64)


def _cosine(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    norms = float(np.linalg.norm(first) * np.linalg.norm(second))
    if norms == 0.0:
        return 1.0 if np.array_equal(first, second) else 0.0
    return min(1.0, float(first @ second) / norms)
