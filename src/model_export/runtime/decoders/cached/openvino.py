"""The cache in OpenVINO: its own state, or tensors that go from one request to another."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import openvino
from numpy.typing import NDArray

from model_export.manifest import ComponentRecord, Manifest, TensorRecord
from model_export.runtime.decoders.cached_graph import CachedGraph
from model_export.runtime.decoders.signature import (
    LOGITS,
    CacheKind,
    Signature,
    first_scalar,
    inner_sizes,
    read_signature,
)
from model_export.runtime.errors import RuntimeModelError
from model_export.runtime.graph import Array, numpy_dtype, plain_name
from model_export.runtime.graphs.openvino import (
    BEAM_INDEX,
    open_model,
    state_records,
    to_array,
    to_tensor,
)


class StatefulGraph:
    """Satisfies `CachedGraph` with a graph that keeps its cache as OpenVINO's state."""

    def __init__(
        self,
        compiled: openvino.CompiledModel,
        signature: Signature,
        states: Mapping[str, tuple[TensorRecord, TensorRecord]],
    ) -> None:
        self.signature = signature
        self._request = compiled.create_infer_request()
        self._states = states
        self._takes_beams = any(t.name == BEAM_INDEX for t in signature.record.inputs)
        self._reordered = False
        self._beams = np.arange(0, dtype=np.int32)
        self._last = np.empty((0, 0), np.float32)

    def clear(self, batch: int, capacity: int) -> None:
        self._request.reset_state()
        self._beams = np.arange(batch, dtype=np.int32)
        self._reordered = False

    def fill(self, cache: Mapping[str, Array]) -> None:
        for state in self._request.query_state():
            before, _ = self._states[state.name]
            state.state = to_tensor(cache[plain_name(before.name)], before.dtype)

    def step(self, feeds: Mapping[str, Array]) -> NDArray[np.float32]:
        tensors = {
            tensor.name: shared_tensor(feeds[tensor.name], tensor.dtype)
            for tensor in self.signature.record.inputs
            if tensor.name != BEAM_INDEX
        }
        if self._takes_beams:
            tensors[BEAM_INDEX] = openvino.Tensor(self._beams, shared_memory=True)
        infer(self._request, self.signature, tensors)
        if self._reordered:
            self._beams = np.arange(len(self._beams), dtype=np.int32)
            self._reordered = False
        self._last = last_logits(self._request, self._last)
        return self._last

    def reorder(self, rows: NDArray[np.int64]) -> None:
        if self._takes_beams:
            self._beams = self._beams[rows]
            self._reordered = True
            return
        for state in self._request.query_state():
            before, _ = self._states[state.name]
            state.state = to_tensor(to_array(state.state)[rows], before.dtype)
        self._beams = np.arange(len(rows), dtype=np.int32)

    def cache_shapes(self) -> dict[str, tuple[int, ...]]:
        return {
            plain_name(self._states[state.name][0].name): (
                len(self._beams),
                *tuple(state.state.get_shape())[1:],
            )
            for state in self._request.query_state()
        }


class StatelessGraph:
    """Satisfies `CachedGraph` with a graph that takes its cache and gives it back.

    Two requests take turns: what one has put out is the other's input, without a copy.
    """

    def __init__(
        self,
        compiled: openvino.CompiledModel,
        signature: Signature,
        sizes: Mapping[str, tuple[int, ...]],
        scalars: Mapping[str, int],
    ) -> None:
        self.signature = signature
        self._requests = [compiled.create_infer_request() for _ in range(2)]
        self._sizes = sizes
        self._scalars = scalars
        self._cache: dict[str, openvino.Tensor] = {}
        self._last = np.empty((0, 0), np.float32)

    def clear(self, batch: int, capacity: int) -> None:
        self._cache = {}
        for tensor in self.signature.cache:
            name, dtype = tensor.input.name, tensor.input.dtype
            if name in self._sizes:
                empty = np.zeros((batch, *self._sizes[name]), numpy_dtype(dtype))
                self._cache[name] = to_tensor(empty, dtype)
            elif name in self._scalars:
                number = np.array(self._scalars[name], numpy_dtype(dtype))
                self._cache[name] = to_tensor(number, dtype)

    def fill(self, cache: Mapping[str, Array]) -> None:
        for tensor in self.signature.cache:
            if tensor.name in cache:
                self._cache[tensor.input.name] = to_tensor(cache[tensor.name], tensor.input.dtype)

    def step(self, feeds: Mapping[str, Array]) -> NDArray[np.float32]:
        request = self._requests[0]
        tensors = {
            tensor.name: shared_tensor(feeds[tensor.name], tensor.dtype)
            for tensor in self.signature.record.inputs
            if tensor.name in feeds
        }
        infer(request, self.signature, tensors | self._cache)
        for tensor in self.signature.cache:
            if tensor.output is not None and tensor.kind is not CacheKind.CROSS:
                self._cache[tensor.input.name] = request.get_tensor(tensor.output.name)
        self._requests.reverse()
        self._last = last_logits(request, self._last)
        return self._last

    def reorder(self, rows: NDArray[np.int64]) -> None:
        for tensor in self.signature.cache:
            if tensor.kind is not CacheKind.SCALAR:
                before = to_array(self._cache[tensor.input.name])
                self._cache[tensor.input.name] = to_tensor(before[rows], tensor.input.dtype)

    def cache_shapes(self) -> dict[str, tuple[int, ...]]:
        return {
            tensor.name: tuple(self._cache[tensor.input.name].get_shape())
            for tensor in self.signature.cache
            if tensor.kind is not CacheKind.SCALAR
        }


def open_cached_graph(
    folder: Path, manifest: Manifest, record: ComponentRecord, window: int | None, device: str
) -> CachedGraph:
    """Load a decode component. Raises ArtifactError."""
    model, compiled = open_model(folder, record)
    states = state_records(model)
    signature = read_signature(record, manifest, tuple(states.values()))
    if states:
        return StatefulGraph(compiled, signature, states)
    return StatelessGraph(
        compiled,
        signature,
        {
            tensor.input.name: inner_sizes(record, tensor, manifest)
            for tensor in signature.cache
            if tensor.kind not in (CacheKind.SCALAR, CacheKind.CROSS)
        },
        {
            tensor.input.name: first_scalar(tensor, window)
            for tensor in signature.cache
            if tensor.kind is CacheKind.SCALAR
        },
    )


def shared_tensor(array: Array, dtype: str) -> openvino.Tensor:
    """A tensor in the memory of a contiguous `array`, which must outlive it; bfloat16 is copied."""
    if dtype == "bfloat16":
        return to_tensor(array, dtype)
    return openvino.Tensor(array, shared_memory=True)


def infer(
    request: openvino.InferRequest, signature: Signature, tensors: Mapping[str, openvino.Tensor]
) -> None:
    """One call. Raises RuntimeModelError with OpenVINO's reason if it fails."""
    try:
        for name, tensor in tensors.items():
            request.set_tensor(name, tensor)
        request.infer()
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[-1].rstrip(".")
        shapes = ", ".join(f"{name} {list(t.get_shape())}" for name, t in tensors.items())
        raise RuntimeModelError(
            f"`{signature.record.name}` failed in OpenVINO for {shapes}: {reason}."
        ) from error


def last_logits(request: openvino.InferRequest, out: NDArray[np.float32]) -> NDArray[np.float32]:
    """The logits of the last position as float32, in `out` if it has their shape."""
    tensor = request.get_tensor(LOGITS)
    batch, _, vocabulary = tensor.get_shape()
    if out.shape != (batch, vocabulary):
        out = np.empty((batch, vocabulary), np.float32)
    if tensor.get_element_type() == openvino.Type.bf16:
        out[...] = to_array(tensor)[:, -1]
    else:
        out[...] = tensor.data[:, -1]
    return out
