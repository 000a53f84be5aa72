"""The cache in ExecuTorch: copied out of the program's memory after every call."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model_export.manifest import ComponentRecord, Manifest
from model_export.runtime.decoders.cache_tensors import CacheKind
from model_export.runtime.decoders.cached.torch_cache import TorchCache, last_logits
from model_export.runtime.decoders.model_config import ModelConfig
from model_export.runtime.decoders.signature import Signature, read_signature
from model_export.runtime.graph import Array
from model_export.runtime.graphs.executorch import execute, open_method


class ExecutorchCachedGraph:
    """Satisfies `CachedGraph`."""

    def __init__(self, method: Any, signature: Signature, cache: TorchCache) -> None:
        self.signature = signature
        self._method = method
        self._cache = cache
        self._last = np.empty((0, 0), np.float32)

    def clear(self, batch: int, capacity: int) -> None:
        self._cache.clear(batch)

    def fill(self, cache: Mapping[str, Array]) -> None:
        self._cache.fill(cache)

    def step(self, feeds: Mapping[str, Array]) -> NDArray[np.float32]:
        results = execute(self.signature.record, self._method, self._cache.inputs(feeds))
        outputs = self._cache.outputs(results)
        for tensor in self.signature.cache:
            if tensor.output is None or tensor.kind is CacheKind.CROSS:
                continue
            # Results are views of memory that the next call overwrites.
            result, kept = outputs[tensor.output.name], self._cache.tensors[tensor.input.name]
            if result.shape == kept.shape:
                kept.copy_(result)
            else:
                self._cache.tensors[tensor.input.name] = result.clone()
        self._last = last_logits(outputs, self._last)
        return self._last

    def reorder(self, rows: NDArray[np.int64]) -> None:
        self._cache.reorder(rows)

    def cache_shapes(self) -> dict[str, tuple[int, ...]]:
        return self._cache.shapes()


def open_cached_graph(
    folder: Path, manifest: Manifest, record: ComponentRecord, config: ModelConfig, device: str
) -> ExecutorchCachedGraph:
    """Load a decode component. Raises ArtifactError."""
    signature = read_signature(record, manifest, config)
    cache = TorchCache(signature, device)
    return ExecutorchCachedGraph(open_method(folder, record), signature, cache)
