"""What a decode loop drives: the graphs of one model with the cache kept inside."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from model_export.manifest import Manifest
from model_export.runtime.graph import Array


class Decoder(Protocol):
    """A session of one batch of sequences.

    `start` begins anew, whatever came before. `feed` then takes the next tokens of every sequence,
    any number of them where the graphs allow it, and returns the logits of the last position.
    """

    batch: int

    def start(self, batch: int, inputs: Mapping[str, Array], capacity: int) -> None:
        """Forget the last batch; make room for `capacity` positions in each of `batch` sequences.

        `inputs` are those of `generate` that are no decoder tokens (`input_features`; for an
        encoder-decoder `input_ids` and `attention_mask`), and run the encoder. Raises InputError
        if the artifact can't hold as many positions or sequences.
        """
        ...

    def feed(self, ids: NDArray[np.int64], mask: NDArray[np.int64]) -> NDArray[np.float32]:
        """Logits [batch, vocabulary] after `ids` [batch, n]; `mask` [batch, n], 0 at padding.

        The result is only valid until the next call: loops reuse its memory.
        """
        ...

    def reorder(self, rows: NDArray[np.int64]) -> None:
        """Continue with the sequences `rows` [new batch] of the current ones, in that order."""
        ...

    def cache_shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of every cache tensor as of now, batch included, under its plain name."""
        ...


def open_decoder(folder: Path, manifest: Manifest, device: str = "cpu") -> Decoder:
    """The decoder of an artifact that was exported for generation, on "cpu" or "cuda".

    Raises ArtifactError if it was not, or lacks a component that a decode loop needs.
    """
    from model_export.runtime.decoders import open_decoder as choose

    return choose(folder, manifest, device)
