"""A decode graph that keeps its cache between calls, in whatever way its runtime does that best."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from model_export.manifest import ComponentRecord, Manifest
from model_export.runtime.decoders.model_config import ModelConfig
from model_export.runtime.decoders.signature import Signature
from model_export.runtime.graph import Array
from model_export.runtime.huge_pages import huge_pages


class CachedGraph(Protocol):
    """The decode component of an artifact with its cache."""

    signature: Signature

    def clear(self, batch: int, capacity: int) -> None:
        """Begin `batch` sequences with an empty cache and room for `capacity` positions each."""
        ...

    def fill(self, cache: Mapping[str, Array]) -> None:
        """Take over the cache that a prefill gave, by plain name (`cache.layers.0.keys`)."""
        ...

    def step(self, feeds: Mapping[str, Array]) -> NDArray[np.float32]:
        """One call with everything but the cache, which it updates.

        `feeds` are contiguous and of the record's dtypes (float32 for bfloat16). Returns the logits
        of the last position [batch, vocabulary], valid until the next call.
        """
        ...

    def reorder(self, rows: NDArray[np.int64]) -> None:
        """Continue with the sequences `rows`."""
        ...

    def cache_shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of every cache tensor that has a batch, by plain name."""
        ...


def open_cached_graph(
    folder: Path, manifest: Manifest, record: ComponentRecord, config: ModelConfig, device: str
) -> CachedGraph:
    """Load a decode component; imports its format's runtime alone. Raises ArtifactError."""
    module = importlib.import_module(
        f"model_export.runtime.decoders.cached.{manifest.export_format}"
    )
    with huge_pages():
        graph: CachedGraph = module.open_cached_graph(folder, manifest, record, config, device)
    return graph
