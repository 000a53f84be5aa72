"""What a graph is told about the next tokens: ids, positions and masks, in reused memory."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model_export.manifest import Dimension
from model_export.runtime.decoders.signature import Mask, Signature
from model_export.runtime.errors import ArtifactError
from model_export.runtime.graph import Array, numpy_dtype, plain_name

# Of text, time, height and width.
_MROPE_PLANES = 4


class TokenFeeds:
    """The padding of each sequence so far, and the inputs that follow from it.

    `slots` is the length of a static cache: the last axis of the masks of rank 4. `window` is how
    many positions sliding attention sees, the current one included.
    """

    def __init__(self, batch: int, capacity: int, slots: int | None, window: int | None) -> None:
        self.past = 0
        self._slots = slots
        self._window = window
        self._real = np.zeros((batch, max(capacity, slots or 0)), dtype=np.bool_)
        self._counts = np.zeros((batch, 1), dtype=np.int64)
        # How far the positions of time, height and width are from that of text (M-RoPE).
        self.offsets = np.zeros((batch, 1), dtype=np.int64)
        self._memory: dict[str, Array] = {}

    def advance(
        self, signature: Signature, ids: NDArray[np.int64], mask: NDArray[np.int64]
    ) -> dict[str, Array]:
        """The inputs for `ids` [batch, n] after what came before, all contiguous.

        They are valid until the next call.
        """
        new = ids.shape[1]
        total = self.past + new
        self._real[:, self.past : total] = mask
        feeds: dict[str, Array] = {signature.tokens.name: np.ascontiguousarray(ids)}
        # Not in place: numpy 2.4.6 takes 0.15 ms for that where it has one element.
        self._counts = self._counts + (mask if new == 1 else mask.sum(axis=1, keepdims=True))
        if signature.positions is not None:
            feeds[signature.positions.name] = self._positions(mask, signature.positions.shape)
        for item in signature.masks:
            feeds[item.tensor.name] = (
                self._square(item, new) if item.full else self._flat(item, total)
            )
        self.past = total
        return feeds

    def reorder(self, rows: NDArray[np.int64]) -> None:
        """Continue with the sequences `rows`."""
        self._real = self._real[rows]
        self._counts = self._counts[rows]
        self.offsets = self.offsets[rows]

    def _positions(self, mask: NDArray[np.int64], shape: tuple[Dimension, ...]) -> Array:
        """The real tokens before each one; 0 at padding on the left, as `generate` has it.

        Those of `mask` are counted already.
        Of rank 3 the positions are those of text, and then as many others as the graph takes.
        """
        if mask.shape[1] == 1:
            text = self._counts - 1
        else:
            text = np.cumsum(mask, axis=1)
            text += self._counts - text[:, -1:] - 1
        if len(shape) == 2:
            return np.maximum(text, 0)
        positions = self._view("positions", "int64", _MROPE_PLANES, *mask.shape)
        positions[0] = text
        positions[1:] = text + self.offsets
        return np.maximum(positions, 0, out=positions)

    def _flat(self, mask: Mask, total: int) -> Array:
        view = self._view(mask.tensor.name, mask.tensor.dtype, len(self._real), total)
        view[...] = self._real[:, :total]
        return view

    def _square(self, mask: Mask, new: int) -> Array:
        """Causal: each new position sees the real ones up to itself, inside its window."""
        if self._slots is None:
            raise ArtifactError(
                f"`{mask.tensor.name}` spans a static cache, but the manifest names no "
                "`max_cache_len`: export it again."
            )
        view = self._view(mask.tensor.name, "bool", len(self._real), 1, new, self._slots)
        view[...] = self._real[:, None, None, : self._slots]
        for row in range(new):
            end = self.past + row + 1
            view[:, 0, row, end:] = False
            # A model whose layers all slide names no layer type (transformers' masking_utils,
            # create_masks_for_generate).
            if mask.sliding or "." not in plain_name(mask.tensor.name):
                view[:, 0, row, : max(end - self._reach(mask), 0)] = False
        return view

    def _reach(self, mask: Mask) -> int:
        if self._window is not None:
            return self._window
        if not mask.sliding:
            return self._real.shape[1]
        raise ArtifactError(
            f"`{mask.tensor.name}` needs `sliding_window` in the artifact's config.json: "
            "export it again."
        )

    def _view(self, name: str, dtype: str, *shape: int) -> NDArray[Any]:
        """An array of `shape` in memory that is kept for `name`."""
        size = math.prod(shape)
        memory = self._memory.get(name)
        if memory is None or memory.size < size:
            # Room for the steps to come, which need a little more each.
            memory = np.empty(
                max(size, 2 * (0 if memory is None else memory.size)), numpy_dtype(dtype)
            )
            self._memory[name] = memory
        return memory[:size].reshape(shape)
