"""Decoders of models that see or hear: a prompt as vectors, then token by token."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from model_export.runtime.decoders.cached_graph import CachedGraph
from model_export.runtime.decoders.causal import CausalDecoder
from model_export.runtime.decoders.limits import check_start
from model_export.runtime.decoders.media import MediaEncoder
from model_export.runtime.decoders.prefill import Prefill
from model_export.runtime.decoders.signature import HIDDEN_STATE
from model_export.runtime.decoders.vision_grid import prompt_positions
from model_export.runtime.errors import InputError
from model_export.runtime.graph import Array, Graph, numpy_dtype


class MultimodalDecoder(CausalDecoder):
    """Satisfies `model_export.runtime.decoder.Decoder`.

    The prompt that is fed first goes through `embedding`, has the vectors of `media` put where
    their placeholders are, and then goes through `language_model` and `head`. `slots` is the length
    of a static cache, `window` that of sliding attention.
    """

    def __init__(
        self,
        media: tuple[MediaEncoder, ...],
        embedding: Graph,
        language_model: Prefill,
        head: Graph,
        decode: CachedGraph,
        *,
        grid_merge: int | None,
        slots: int | None,
        window: int | None,
    ) -> None:
        super().__init__(decode, language_model, slots, window)
        self._media = media
        self._embedding = embedding
        self._language_model = language_model
        self._head = head
        self._grid_merge = grid_merge
        self._vectors: dict[int, Array] = {}
        self._grids: dict[int, NDArray[np.int64]] = {}

    def start(self, batch: int, inputs: Mapping[str, Array], capacity: int) -> None:
        check_start(self._decode.signature, batch, capacity)
        known = {name for media in self._media for name in media.record.inputs}
        # Which tokens are placeholders is seen by their ids.
        unknown = sorted(set(inputs) - known - {"mm_token_type_ids"})
        if unknown:
            taken = f"it takes {', '.join(sorted(known))}" if known else "it takes tokens alone"
            raise InputError(f"This model doesn't take {', '.join(unknown)}: {taken}.")
        self._vectors, self._grids = {}, {}
        for media in self._media:
            vectors, grid = media.encode(inputs), media.grid(inputs)
            if vectors is not None:
                self._vectors[media.token] = vectors
            if grid is not None:
                self._grids[media.token] = grid
        self._begin(batch, capacity)

    def _prompt(
        self, ids: NDArray[np.int64], mask: NDArray[np.int64]
    ) -> tuple[int, NDArray[np.float32] | None]:
        done = self._language_model.tokens(ids.shape[1])
        self._check_placeholders(ids[:, :done])
        return done, self._seen(ids[:, :done], mask[:, :done]) if done else None

    def _seen(self, ids: NDArray[np.int64], mask: NDArray[np.int64]) -> NDArray[np.float32]:
        signature = self._language_model.signature
        fed = self._feeds.advance(signature, ids, mask)
        fed[signature.tokens.name] = self._merged(ids)
        positions = signature.positions
        if positions is not None and len(positions.shape) == 3 and self._grids:
            assert self._grid_merge is not None
            places, ahead = prompt_positions(ids, mask, self._grids, self._grid_merge)
            fed[positions.name][1:] = places
            self._feeds.offsets = ahead
        hidden, cache = self._language_model.last(HIDDEN_STATE, fed)
        self._decode.fill(cache)
        (port,) = self._head.record.inputs
        last = hidden[:, None].astype(numpy_dtype(port.dtype))
        (logits,) = self._head.run({port.name: last}).values()
        return np.array(logits[:, -1], np.float32)

    def _merged(self, ids: NDArray[np.int64]) -> Array:
        """The vector of each token, those of images and sound where their placeholders are."""
        text = ids.copy()
        for media in self._media:
            # Its own vector isn't used, and its id may be outside of the vocabulary.
            text[ids == media.token] = 0
        (port,) = self._embedding.record.inputs
        (output,) = self._embedding.run({port.name: text}).values()
        merged = np.array(output)
        for token, vectors in self._vectors.items():
            merged[ids == token] = vectors
        return merged

    def _check_placeholders(self, ids: NDArray[np.int64]) -> None:
        for media in self._media:
            wanted = int((ids == media.token).sum())
            there = len(self._vectors.get(media.token, ()))
            if wanted != there:
                raise InputError(
                    f"The prompts have the placeholder {media.token} {wanted} times, and "
                    f"`{media.record.encoder}` makes {there} vectors: write it once for each, "
                    "and feed it at first."
                )
