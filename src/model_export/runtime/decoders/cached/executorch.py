"""The cache in ExecuTorch: copied out of the program's memory after every call."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from model_export.manifest import ComponentRecord, Manifest
from model_export.runtime.decoders.cache_tensors import CacheKind, CacheTensor
from model_export.runtime.decoders.cached.torch_cache import TorchCachedGraph
from model_export.runtime.decoders.model_config import ModelConfig
from model_export.runtime.decoders.signature import Signature, read_signature
from model_export.runtime.graphs.executorch import execute, open_method


class ExecutorchCachedGraph(TorchCachedGraph):
    """Satisfies `CachedGraph`."""

    def __init__(self, method: Any, signature: Signature, device: str) -> None:
        super().__init__(signature, device)
        self._method = method

    def call(self, inputs: list[torch.Tensor]) -> Sequence[torch.Tensor]:
        return execute(self.signature.record, self._method, inputs)

    def keep(self, tensor: CacheTensor, result: torch.Tensor) -> None:
        if tensor.kind is CacheKind.CROSS:
            return
        # Results are views of memory that the next call overwrites.
        kept = self.cache.tensors[tensor.input.name]
        if result.shape == kept.shape:
            kept.copy_(result)
        else:
            self.cache.tensors[tensor.input.name] = result.clone()


def open_cached_graph(
    folder: Path, manifest: Manifest, record: ComponentRecord, config: ModelConfig, device: str
) -> ExecutorchCachedGraph:
    """Load a decode component. Raises ArtifactError."""
    signature = read_signature(record, manifest, config)
    return ExecutorchCachedGraph(open_method(folder, record), signature, device)
