"""Decoders of encoder-decoder models: the encoder once, then tokens one at a time."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from model_export.runtime.decoders.cached_graph import CachedGraph
from model_export.runtime.decoders.limits import check_fed, check_start, steps_of
from model_export.runtime.decoders.prefill import Prefill
from model_export.runtime.decoders.signature import ENCODER_PREFIX, Signature
from model_export.runtime.decoders.token_feeds import TokenFeeds
from model_export.runtime.errors import InputError
from model_export.runtime.graph import Array, Graph


class EncoderDecoder:
    """Satisfies `model_export.runtime.decoder.Decoder`.

    `prefill` takes the first tokens and makes the cache of the encoder's tokens, which `decode`
    only reads. `slots` is the length of a static cache.
    """

    def __init__(
        self, encoder: Graph, prefill: Prefill, decode: CachedGraph, slots: int | None
    ) -> None:
        self.batch = 0
        self._encoder = encoder
        self._prefill = prefill
        self._decode = decode
        self._slots = slots
        self._capacity = 0
        self._encoded: dict[str, Array] = {}
        self._feeds = TokenFeeds(0, 0, None, None)

    def start(self, batch: int, inputs: Mapping[str, Array], capacity: int) -> None:
        check_start(self._decode.signature, batch, capacity)
        for name, array in inputs.items():
            if len(array) != batch:
                raise InputError(f"`{name}` has {len(array)} sequences, and the batch is {batch}.")
        outputs = self._encoder.run(inputs)
        self._encoded = dict(inputs) | {
            ENCODER_PREFIX + name: array for name, array in outputs.items()
        }
        self.batch, self._capacity = batch, capacity
        self._feeds = TokenFeeds(batch, capacity, self._slots, None)
        self._decode.clear(batch, capacity)

    def feed(self, ids: NDArray[np.int64], mask: NDArray[np.int64]) -> NDArray[np.float32]:
        signature, feeds = self._decode.signature, self._feeds
        check_fed(signature, ids, mask, self.batch, feeds.past, self._capacity)
        done = 0
        logits: NDArray[np.float32] | None = None
        if feeds.past == 0:
            done = self._prefill.tokens(ids.shape[1])
            if not done:
                raise InputError(
                    f"`prefill` was exported for {self._prefill.signature.tokens_at_once} tokens, "
                    f"not {ids.shape[1]}: feed as many at first."
                )
            call = feeds.advance(self._prefill.signature, ids[:, :done], mask[:, :done])
            logits, cache = self._prefill.run(call | self._of_encoder(self._prefill.signature))
            self._decode.fill(cache)
        for start, end in steps_of(signature, self.batch, done, ids.shape[1]):
            call = feeds.advance(signature, ids[:, start:end], mask[:, start:end])
            logits = self._decode.step(call | self._of_encoder(signature))
        assert logits is not None
        return logits

    def reorder(self, rows: NDArray[np.int64]) -> None:
        self._feeds.reorder(rows)
        self._decode.reorder(rows)
        self._encoded = {name: array[rows] for name, array in self._encoded.items()}
        self.batch = len(rows)

    def cache_shapes(self) -> dict[str, tuple[int, ...]]:
        return self._decode.cache_shapes()

    def _of_encoder(self, signature: Signature) -> dict[str, Array]:
        """What a graph takes of the encoder: its output and its mask."""
        missing = [t.name for t in signature.encoder if t.name not in self._encoded]
        if missing:
            raise InputError(
                f"`{signature.record.name}` takes {', '.join(missing)}: pass it to `start`."
            )
        return {tensor.name: self._encoded[tensor.name] for tensor in signature.encoder}
