"""The cache in torch: a static one is written in place, a growing one comes out longer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from model_export.manifest import ComponentRecord, Manifest
from model_export.runtime.decoders.cache_tensors import CacheKind, CacheTensor
from model_export.runtime.decoders.cached.torch_cache import TorchCachedGraph
from model_export.runtime.decoders.model_config import ModelConfig
from model_export.runtime.decoders.signature import Signature, read_signature
from model_export.runtime.graphs.dynamo import Call, open_call


class DynamoCachedGraph(TorchCachedGraph):
    """Satisfies `CachedGraph`."""

    def __init__(self, program: Call, signature: Signature, device: str) -> None:
        super().__init__(signature, device)
        self._program = program

    def call(self, inputs: list[torch.Tensor]) -> Sequence[torch.Tensor]:
        return self._program(inputs)

    def keep(self, tensor: CacheTensor, result: torch.Tensor) -> None:
        if tensor.kind is not CacheKind.STATIC:
            self.cache.tensors[tensor.input.name] = result


def open_cached_graph(
    folder: Path, manifest: Manifest, record: ComponentRecord, config: ModelConfig, device: str
) -> DynamoCachedGraph:
    """Load a decode component on `device` ("cpu" or "cuda"). Raises ArtifactError."""
    signature = read_signature(record, manifest, config)
    return DynamoCachedGraph(open_call(folder, record, device), signature, device)
