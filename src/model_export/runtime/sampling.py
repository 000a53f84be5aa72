"""Chooses the next token of every sequence of a batch from its logits.

Names, order and meaning of the steps are those of transformers 5.24: repetition penalty, suppressed
tokens, temperature, top-k, top-p.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from model_export.runtime.errors import InputError


@dataclass(frozen=True)
class Sampling:
    """How a token is chosen: the most likely at `temperature` 0, else drawn.

    `top_k` keeps the k most likely tokens, `top_p` the most likely ones whose probabilities reach p
    together; None keeps all. `repetition_penalty` divides the positive logits of tokens that have
    occurred, and multiplies the negative ones. Raises InputError for a value out of range.
    """

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    repetition_penalty: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < np.inf:
            raise InputError(f"temperature is {self.temperature}: give 0 (greedy) or more.")
        if self.top_k is not None and self.top_k < 1:
            raise InputError(f"top_k is {self.top_k}: give at least 1, or None for all tokens.")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise InputError(f"top_p is {self.top_p}: give more than 0 and at most 1.")
        if not 0 < self.repetition_penalty < np.inf:
            raise InputError(
                f"repetition_penalty is {self.repetition_penalty}: give more than 0, 1 for none."
            )


@dataclass(frozen=True)
class TokenRules:
    """What a checkpoint's `generation_config.json` says about tokens, whatever their logits.

    `suppressed` never come, `suppressed_first` not as the first token; `forced_first` is the first.
    """

    suppressed: tuple[int, ...] = ()
    suppressed_first: tuple[int, ...] = ()
    forced_first: int | None = None


class Sampler:
    """Chooses tokens for `batch` sequences over `vocabulary`; each draws from a stream of its own.

    One `seed` gives sequence i the i-th stream of that seed, whatever else is in the batch; a seed
    for each sequence gives it the first stream of its own seed, wherever it stands.
    """

    def __init__(
        self,
        batch: int,
        vocabulary: int,
        sampling: Sampling,
        seed: int | Sequence[int] | None = None,
        rules: TokenRules | None = None,
    ) -> None:
        self._sampling = sampling
        self._rules = rules or TokenRules()
        self._steps = 0
        self._rows = np.arange(batch)
        self._ids = np.empty(batch, np.int64)
        self._scores = np.empty((batch, vocabulary), np.float32)
        self._penalized = sampling.repetition_penalty != 1.0
        self._marked = np.empty((batch, vocabulary), np.bool_)
        if self._penalized:
            self._seen = np.zeros((batch, vocabulary), np.bool_)
        if sampling.temperature > 0:
            self._streams = _streams(batch, seed)
            self._sums = np.empty((batch, vocabulary), np.float64)
            self._sorted = np.empty((batch, vocabulary), np.float32)

    def see(self, row: int, ids: Sequence[int] | NDArray[np.int64]) -> None:
        """Count the tokens of a prompt as occurred in sequence `row`."""
        if self._penalized:
            self._seen[row, ids] = True

    def choose(self, logits: NDArray[np.float32]) -> NDArray[np.int64]:
        """The next tokens [batch] for `logits` [batch, vocabulary], which stay as they are.

        The result is only valid until the next call.
        """
        scores = self.scores(logits)
        if self._sampling.temperature > 0:
            self._draw(scores)
        else:
            np.argmax(scores, axis=-1, out=self._ids)
        if self._penalized:
            self._seen[self._rows, self._ids] = True
        self._steps += 1
        return self._ids

    def scores(self, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        """The logits that the next tokens are chosen by, [batch, vocabulary]; -inf where never.

        Their softmax is the distribution that tokens are drawn from. Valid until the next call.
        """
        suppressed = self._rules.suppressed
        if self._steps == 0:
            suppressed += self._rules.suppressed_first
            if self._rules.forced_first is not None:
                self._scores.fill(-np.inf)
                self._scores[:, self._rules.forced_first] = 0
                return self._scores
        if not (self._penalized or suppressed or self._sampling.temperature > 0):
            return logits
        scores = self._scores
        np.copyto(scores, logits)
        if self._penalized:
            self._penalize(scores)
        if suppressed:
            scores[:, list(suppressed)] = -np.inf
        if self._sampling.temperature > 0:
            scores /= np.float32(self._sampling.temperature)
            self._keep_top_k(scores)
            self._keep_top_p(scores)
        return scores

    def _penalize(self, scores: NDArray[np.float32]) -> None:
        penalty, marked = np.float32(self._sampling.repetition_penalty), self._marked
        np.less(scores, 0, out=marked)
        marked &= self._seen
        np.multiply(scores, penalty, out=scores, where=marked)
        # What was negative still is: the others of the seen are those left.
        np.greater_equal(scores, 0, out=marked)
        marked &= self._seen
        np.divide(scores, penalty, out=scores, where=marked)

    def _keep_top_k(self, scores: NDArray[np.float32]) -> None:
        k, vocabulary = self._sampling.top_k, scores.shape[-1]
        if k is None or k >= vocabulary:
            return
        np.copyto(self._sorted, scores)
        self._sorted.partition(vocabulary - k, axis=-1)
        self._drop_below(scores, self._sorted[:, vocabulary - k])

    def _keep_top_p(self, scores: NDArray[np.float32]) -> None:
        p = self._sampling.top_p
        if p is None or p == 1:
            return
        np.copyto(self._sorted, scores)
        self._sorted.sort(axis=-1)
        sums = self._sums
        np.subtract(self._sorted, self._sorted[:, -1:], out=sums)
        np.exp(sums, out=sums)
        np.cumsum(sums, axis=-1, out=sums)
        for row in self._rows:
            # Ascending: dropped is the tail whose probabilities sum to at most 1 - p.
            dropped = sums[row].searchsorted((1 - p) * sums[row, -1], side="right")
            self._ids[row] = min(int(dropped), scores.shape[-1] - 1)
        self._drop_below(scores, self._sorted[self._rows, self._ids])

    def _drop_below(self, scores: NDArray[np.float32], least: NDArray[np.float32]) -> None:
        np.less(scores, least[:, None], out=self._marked)
        np.copyto(scores, -np.inf, where=self._marked)

    def _draw(self, scores: NDArray[np.float32]) -> None:
        """A token for each row by its cumulative distribution at a uniform number of its stream."""
        sums = self._sums
        np.subtract(scores, scores.max(axis=-1, keepdims=True), out=sums)
        np.exp(sums, out=sums)
        np.cumsum(sums, axis=-1, out=sums)
        for row, stream in enumerate(self._streams):
            total = sums[row, -1]
            # Below the total even where the product rounds up to it: never a token beyond the last.
            at = min(stream.random() * total, np.nextafter(total, 0))
            self._ids[row] = sums[row].searchsorted(at, side="right")


def _streams(batch: int, seed: int | Sequence[int] | None) -> list[np.random.Generator]:
    if isinstance(seed, Sequence) and len(seed) != batch:
        raise InputError(f"{len(seed)} seeds for {batch} prompts: give one, or one for each.")
    try:
        if isinstance(seed, Sequence):
            sources = [np.random.SeedSequence(each).spawn(1)[0] for each in seed]
        else:
            sources = np.random.SeedSequence(seed).spawn(batch)
    except (TypeError, ValueError) as error:
        raise InputError(f"seed is {seed!r}: give a whole number from 0 on.") from error
    return [np.random.Generator(np.random.PCG64(each)) for each in sources]
