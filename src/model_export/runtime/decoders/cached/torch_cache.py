"""The cache and its graph for the two runtimes that take torch tensors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from model_export.runtime.decoders.cache_tensors import CacheKind, CacheTensor
from model_export.runtime.decoders.signature import LOGITS, Signature
from model_export.runtime.graph import Array
from model_export.runtime.graphs.torch_arrays import to_tensor


class TorchCachedGraph(ABC):
    """Satisfies `CachedGraph` but for the call of the program, and what is kept of its results."""

    def __init__(self, signature: Signature, device: str) -> None:
        self.signature = signature
        self.cache = TorchCache(signature, device)
        self._last = np.empty((0, 0), np.float32)

    @abstractmethod
    def call(self, inputs: list[torch.Tensor]) -> Sequence[torch.Tensor]:
        """The results in the record's order. Raises RuntimeModelError if the program fails."""

    @abstractmethod
    def keep(self, tensor: CacheTensor, result: torch.Tensor) -> None:
        """Make the output `result` of `tensor` its input in the next call, where it isn't yet."""

    def clear(self, batch: int, capacity: int) -> None:
        self.cache.clear(batch)

    def fill(self, cache: Mapping[str, Array]) -> None:
        self.cache.fill(cache)

    def step(self, feeds: Mapping[str, Array]) -> NDArray[np.float32]:
        outputs = self.cache.outputs(self.call(self.cache.inputs(feeds)))
        for tensor in self.signature.cache:
            if tensor.output is not None:
                self.keep(tensor, outputs[tensor.output.name])
        self._last = last_logits(outputs, self._last)
        return self._last

    def reorder(self, rows: NDArray[np.int64]) -> None:
        self.cache.reorder(rows)

    def cache_shapes(self) -> dict[str, tuple[int, ...]]:
        return self.cache.shapes()


class TorchCache:
    """The cache of a decode graph by the names of its inputs, on one device."""

    def __init__(self, signature: Signature, device: str) -> None:
        self.tensors: dict[str, torch.Tensor] = {}
        self._signature = signature
        self._device = device

    def clear(self, batch: int) -> None:
        """Begin `batch` sequences with an empty cache."""
        self.tensors = {}
        for tensor in self._signature.cache:
            name, dtype = tensor.input.name, getattr(torch, tensor.input.dtype)
            if tensor.kind is CacheKind.SCALAR:
                self.tensors[name] = torch.tensor(tensor.number, dtype=dtype, device=self._device)
            elif tensor.kind is not CacheKind.CROSS:
                shape = (batch, *tensor.sizes)
                self.tensors[name] = torch.zeros(shape, dtype=dtype, device=self._device)

    def fill(self, cache: Mapping[str, Array]) -> None:
        """Take over a prefill's cache, by plain name."""
        for tensor in self._signature.cache:
            if tensor.name in cache:
                filled = to_tensor(cache[tensor.name], tensor.input.dtype)
                self.tensors[tensor.input.name] = filled.to(self._device)

    def inputs(self, feeds: Mapping[str, Array]) -> list[torch.Tensor]:
        """All inputs of a call in the record's order, the cache's tensors without a copy."""
        return [
            self.tensors[tensor.name]
            if tensor.name in self.tensors
            else self._fed(feeds[tensor.name], tensor.dtype)
            for tensor in self._signature.record.inputs
        ]

    def outputs(self, results: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
        """The results of a call by the name of the output."""
        records = self._signature.record.outputs
        return {tensor.name: result for tensor, result in zip(records, results, strict=True)}

    def reorder(self, rows: NDArray[np.int64]) -> None:
        """Continue with the sequences `rows`."""
        index = torch.from_numpy(np.ascontiguousarray(rows)).to(self._device)
        for name, tensor in self.tensors.items():
            if tensor.ndim:
                self.tensors[name] = tensor.index_select(0, index)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of every cache tensor that has a batch, by plain name."""
        return {
            tensor.name: tuple(self.tensors[tensor.input.name].shape)
            for tensor in self._signature.cache
            if tensor.kind is not CacheKind.SCALAR and tensor.input.name in self.tensors
        }

    def _fed(self, array: Array, dtype: str) -> torch.Tensor:
        if dtype == "bfloat16":
            return to_tensor(array, dtype).to(self._device)
        return torch.from_numpy(array).to(self._device)


def last_logits(
    outputs: Mapping[str, torch.Tensor], out: NDArray[np.float32]
) -> NDArray[np.float32]:
    """The logits of the last position as float32, in `out` if it has their shape."""
    logits = outputs[LOGITS][:, -1]
    if out.shape != tuple(logits.shape):
        out = np.empty(tuple(logits.shape), np.float32)
    torch.from_numpy(out).copy_(logits)
    return out
