"""The cache in torch: a static one is written in place, a growing one comes out longer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from model_export.manifest import ComponentRecord, Manifest
from model_export.runtime.decoders.cache_tensors import CacheKind
from model_export.runtime.decoders.cached.torch_cache import TorchCache, last_logits
from model_export.runtime.decoders.model_config import ModelConfig
from model_export.runtime.decoders.signature import Signature, read_signature
from model_export.runtime.graph import Array
from model_export.runtime.graphs.dynamo import Call, open_call


class DynamoCachedGraph:
    """Satisfies `CachedGraph`."""

    def __init__(self, call: Call, signature: Signature, cache: TorchCache) -> None:
        self.signature = signature
        self._call = call
        self._cache = cache
        self._last = np.empty((0, 0), np.float32)

    def clear(self, batch: int, capacity: int) -> None:
        self._cache.clear(batch)

    def fill(self, cache: Mapping[str, Array]) -> None:
        self._cache.fill(cache)

    def step(self, feeds: Mapping[str, Array]) -> NDArray[np.float32]:
        outputs = self._cache.outputs(self._call(self._cache.inputs(feeds)))
        for tensor in self.signature.cache:
            in_place = tensor.kind is CacheKind.STATIC
            if tensor.output is not None and not in_place:
                self._cache.tensors[tensor.input.name] = outputs[tensor.output.name]
        self._last = last_logits(outputs, self._last)
        return self._last

    def reorder(self, rows: NDArray[np.int64]) -> None:
        self._cache.reorder(rows)

    def cache_shapes(self) -> dict[str, tuple[int, ...]]:
        return self._cache.shapes()


def open_cached_graph(
    folder: Path, manifest: Manifest, record: ComponentRecord, config: ModelConfig, device: str
) -> DynamoCachedGraph:
    """Load a decode component on `device` ("cpu" or "cuda"). Raises ArtifactError."""
    signature = read_signature(record, manifest, config)
    cache = TorchCache(signature, device)
    return DynamoCachedGraph(open_call(folder, record, device), signature, cache)
