"""Decoders of text models: a prompt in as few calls as the graph allows, then token by token."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from model_export.runtime.decoders.cached_graph import CachedGraph
from model_export.runtime.decoders.limits import check_fed, check_start, steps_of
from model_export.runtime.decoders.prefill import Prefill
from model_export.runtime.decoders.token_feeds import TokenFeeds
from model_export.runtime.errors import InputError
from model_export.runtime.graph import Array


class CausalDecoder:
    """Satisfies `model_export.runtime.decoder.Decoder`.

    `prefill` takes the first tokens where the decode graph takes one at a time. `slots` is the
    length of a static cache, `window` that of sliding attention.
    """

    def __init__(
        self, decode: CachedGraph, prefill: Prefill | None, slots: int | None, window: int | None
    ) -> None:
        self.batch = 0
        self._decode = decode
        self._prefill = prefill
        self._slots = slots
        self._window = window
        self._capacity = 0
        self._feeds = TokenFeeds(0, 0, None, None)

    def start(self, batch: int, inputs: Mapping[str, Array], capacity: int) -> None:
        if inputs:
            raise InputError(
                f"A text model takes tokens alone, not {', '.join(inputs)}: feed them."
            )
        check_start(self._decode.signature, batch, capacity)
        self._begin(batch, capacity)

    def feed(self, ids: NDArray[np.int64], mask: NDArray[np.int64]) -> NDArray[np.float32]:
        signature, feeds = self._decode.signature, self._feeds
        check_fed(signature, ids, mask, self.batch, feeds.past, self._capacity)
        done, logits = self._prompt(ids, mask) if feeds.past == 0 else (0, None)
        for start, end in steps_of(signature, self.batch, done, ids.shape[1]):
            logits = self._decode.step(
                feeds.advance(signature, ids[:, start:end], mask[:, start:end])
            )
        assert logits is not None
        return logits

    def reorder(self, rows: NDArray[np.int64]) -> None:
        self._feeds.reorder(rows)
        self._decode.reorder(rows)
        self.batch = len(rows)

    def cache_shapes(self) -> dict[str, tuple[int, ...]]:
        return self._decode.cache_shapes()

    def _begin(self, batch: int, capacity: int) -> None:
        self.batch, self._capacity = batch, capacity
        self._feeds = TokenFeeds(batch, capacity, self._slots, self._window)
        self._decode.clear(batch, capacity)

    def _prompt(
        self, ids: NDArray[np.int64], mask: NDArray[np.int64]
    ) -> tuple[int, NDArray[np.float32] | None]:
        """How many of the first tokens went through another graph than `decode`, and the logits."""
        done = 0 if self._prefill is None else self._prefill.tokens(ids.shape[1])
        if self._prefill is None or not done:
            return 0, None
        call = self._feeds.advance(self._prefill.signature, ids[:, :done], mask[:, :done])
        logits, cache = self._prefill.run(call)
        self._decode.fill(cache)
        return done, logits
