"""The cache in ONNX Runtime: buffers that stay where they are, bound by address."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from onnxruntime.capi import onnxruntime_pybind11_state as failures

from model_export.manifest import ComponentRecord, Manifest
from model_export.runtime.decoders.cached.onnx_binding import (
    Binding,
    as_float32,
    storage_dtype,
    to_storage,
)
from model_export.runtime.decoders.cached.onnx_slots import Slot, make_slots
from model_export.runtime.decoders.model_config import ModelConfig
from model_export.runtime.decoders.signature import LOGITS, Signature, read_signature
from model_export.runtime.errors import ArtifactError, RuntimeModelError, first_line
from model_export.runtime.graph import Array
from model_export.runtime.graphs.onnx import open_session

_RUN_FAILURES = (failures.Fail, failures.InvalidArgument, failures.RuntimeException)


class OnnxCachedGraph:
    """Satisfies `CachedGraph`. A step allocates no tensor: see `onnx_slots`."""

    def __init__(
        self,
        session: onnxruntime.InferenceSession,
        signature: Signature,
        slots: tuple[Slot, ...],
        device: str,
    ) -> None:
        self.signature = signature
        self._session = session
        self._slots = slots
        self._binding = Binding(session, device)
        (self._logits_record,) = (t for t in signature.record.outputs if t.name == LOGITS)
        self._dtypes = {tensor.name: tensor.dtype for tensor in signature.record.inputs}
        self._logits: NDArray[Any] = np.empty(0, np.uint8)
        self._last = np.empty((0, 0), np.float32)

    def clear(self, batch: int, capacity: int) -> None:
        for slot in self._slots:
            slot.clear(batch, capacity)

    def fill(self, cache: Mapping[str, Array]) -> None:
        for slot in self._slots:
            if slot.tensor.name in cache:
                slot.fill(cache[slot.tensor.name])

    def step(self, feeds: Mapping[str, Array]) -> NDArray[np.float32]:
        batch, new = feeds[self.signature.tokens.name].shape
        binding = self._binding
        kept: list[Array] = []
        for name, array in feeds.items():
            dtype = self._dtypes[name]
            kept.append(to_storage(array, dtype))
            binding.bind_input(name, dtype, kept[-1])
        logits = self._bind_logits(batch, new)
        for slot in self._slots:
            slot.bind(binding, new)
        try:
            binding.run()
        except _RUN_FAILURES as error:
            reason = first_line(error)
            shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in feeds.items())
            raise RuntimeModelError(
                f"`{self.signature.record.name}` failed in ONNX Runtime for {shapes}: {reason}."
            ) from error
        for slot in self._slots:
            slot.advance(new)
        if len(self._last) != batch:
            self._last = np.empty((batch, logits.shape[-1]), np.float32)
        return as_float32(logits[:, -1], self._logits_record.dtype, self._last)

    def reorder(self, rows: NDArray[np.int64]) -> None:
        for slot in self._slots:
            slot.reorder(rows)

    def cache_shapes(self) -> dict[str, tuple[int, ...]]:
        return {slot.tensor.name: slot.shape for slot in self._slots if slot.shape}

    def _bind_logits(self, batch: int, new: int) -> Array:
        vocabulary = self._logits_record.shape[-1]
        if not isinstance(vocabulary, int):
            raise ArtifactError(f"{self.signature.record.file} has logits of unknown size.")
        dtype = storage_dtype(self._logits_record.dtype)
        size = batch * new * vocabulary
        if self._logits.size < size or self._logits.dtype != dtype:
            self._logits = np.empty(size, dtype)
        logits = self._logits[:size].reshape(batch, new, vocabulary)
        self._binding.bind_output(
            LOGITS, self._logits_record.dtype, logits.shape, logits.ctypes.data, "cpu"
        )
        return logits


def open_cached_graph(
    folder: Path, manifest: Manifest, record: ComponentRecord, config: ModelConfig, device: str
) -> OnnxCachedGraph:
    """Load a decode component on `device` ("cpu" or "cuda"). Raises ArtifactError."""
    signature = read_signature(record, manifest, config)
    slots = make_slots(signature, device)
    return OnnxCachedGraph(open_session(folder, record, device), signature, slots, device)
