"""The cache in OpenVINO: its own state, or tensors that go from one request to another."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import openvino
from numpy.typing import NDArray

from model_export.manifest import ComponentRecord, Manifest, TensorRecord
from model_export.runtime.decoders.cache_tensors import CacheKind
from model_export.runtime.decoders.cached_graph import CachedGraph
from model_export.runtime.decoders.model_config import ModelConfig
from model_export.runtime.decoders.signature import LOGITS, Signature, read_signature
from model_export.runtime.errors import InputError
from model_export.runtime.graph import Array, numpy_dtype, plain_name
from model_export.runtime.graphs.openvino import (
    BEAM_INDEX,
    infer,
    open_model,
    put,
    state_records,
    to_array,
    to_tensor,
)
from model_export.runtime.huge_pages import huge_pages


class _Input:
    """An input of a request, filled in its own memory; looked up once, which takes longer."""

    def __init__(self, tensor: TensorRecord, own: openvino.Tensor) -> None:
        self.tensor = tensor
        self._own = own
        self._shape: tuple[int, ...] | None = None
        self._memory = np.empty(0)

    def put(self, array: Array) -> None:
        """Copy `array` into it."""
        if array.shape == self._shape and self.tensor.dtype != "bfloat16":
            self._memory[...] = array
            return
        put(self._own, self.tensor, array)
        self._memory, self._shape = self._own.data, array.shape


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
        own = {
            tensor.name: _Input(tensor, self._request.get_tensor(tensor.name))
            for tensor in signature.record.inputs
        }
        self._beam_input = own.pop(BEAM_INDEX, None)
        self._inputs = tuple(own.values())
        self._states = states
        self._packed_for: set[bool] = set()
        self._reordered = False
        self._beams = np.arange(0, dtype=np.int32)

    def clear(self, batch: int, capacity: int) -> None:
        self._request.reset_state()
        self._set_beams(np.arange(batch, dtype=np.int32))

    def fill(self, cache: Mapping[str, Array]) -> None:
        for state in self._request.query_state():
            before, _ = self._states[state.name]
            array = cache[plain_name(before.name)]
            if any(
                isinstance(wanted, int) and wanted != size
                for wanted, size in zip(before.shape, array.shape, strict=True)
            ):
                # transformers 5.24.0 fixes every axis of a state that doesn't grow.
                raise InputError(
                    f"`{self.signature.record.name}` keeps `{plain_name(before.name)}` as "
                    f"{list(before.shape)}, not {list(array.shape)}: pass an input of the length "
                    "that it was exported with, or export it with config stateful=False."
                )
            state.state = to_tensor(array, before.dtype)

    def step(self, feeds: Mapping[str, Array]) -> NDArray[np.float32]:
        for each in self._inputs:
            each.put(feeds[each.tensor.name])
        single = feeds[self.signature.tokens.name].shape[1] == 1
        # OpenVINO 2026.3.1 packs some weights at the first call of one token, others of several.
        with contextlib.nullcontext() if single in self._packed_for else huge_pages():
            infer(self.signature.record, self._request)
        self._packed_for.add(single)
        if self._reordered:
            self._set_beams(np.arange(len(self._beams), dtype=np.int32))
        return last_logits(self._request)

    def reorder(self, rows: NDArray[np.int64]) -> None:
        if self._beam_input is not None:
            self._set_beams(self._beams[rows])
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

    def _set_beams(self, beams: NDArray[np.int32]) -> None:
        """Which row of the cache each sequence goes on from, in the next calls."""
        self._beams = beams
        self._reordered = False
        if self._beam_input is not None:
            self._beam_input.put(beams)


class StatelessGraph:
    """Satisfies `CachedGraph` with a graph that takes its cache and gives it back.

    Two requests take turns: what one has put out is the other's input, without a copy.
    """

    def __init__(self, compiled: openvino.CompiledModel, signature: Signature) -> None:
        self.signature = signature
        self._requests = [compiled.create_infer_request() for _ in range(2)]
        self._dtypes = {tensor.input.name: tensor.input.dtype for tensor in signature.cache}
        self._cache: dict[str, openvino.Tensor] = {}
        # What is copied into every call: numbers, and what was made of the encoder's tokens.
        self._same: dict[str, Array] = {}

    def clear(self, batch: int, capacity: int) -> None:
        self._cache, self._same = {}, {}
        for tensor in self.signature.cache:
            name, dtype = tensor.input.name, tensor.input.dtype
            if tensor.kind is CacheKind.SCALAR:
                self._same[name] = np.array(tensor.number, numpy_dtype(dtype))
            elif tensor.kind is not CacheKind.CROSS:
                empty = np.zeros((batch, *tensor.sizes), numpy_dtype(dtype))
                self._cache[name] = to_tensor(empty, dtype)

    def fill(self, cache: Mapping[str, Array]) -> None:
        for tensor in self.signature.cache:
            name = tensor.input.name
            if tensor.name not in cache:
                continue
            if name in self._cache:
                self._cache[name] = to_tensor(cache[tensor.name], tensor.input.dtype)
            else:
                self._same[name] = cache[tensor.name]

    def step(self, feeds: Mapping[str, Array]) -> NDArray[np.float32]:
        request = self._requests[0]
        for tensor in self.signature.record.inputs:
            if tensor.name in self._cache:
                request.set_tensor(tensor.name, self._cache[tensor.name])
            else:
                array = (feeds if tensor.name in feeds else self._same)[tensor.name]
                put(request.get_tensor(tensor.name), tensor, array)
        infer(self.signature.record, request)
        for item in self.signature.cache:
            if item.output is None or item.kind is CacheKind.CROSS:
                continue
            result = request.get_tensor(item.output.name)
            if item.kind is CacheKind.SCALAR:
                self._same[item.input.name] = to_array(result)
            else:
                self._cache[item.input.name] = result
        self._requests.reverse()
        return last_logits(request)

    def reorder(self, rows: NDArray[np.int64]) -> None:
        for name, tensor in self._cache.items():
            self._cache[name] = to_tensor(to_array(tensor)[rows], self._dtypes[name])
        for name, array in self._same.items():
            if array.ndim:
                self._same[name] = array[rows]

    def cache_shapes(self) -> dict[str, tuple[int, ...]]:
        shapes = {name: tuple(tensor.get_shape()) for name, tensor in self._cache.items()}
        shapes |= {name: array.shape for name, array in self._same.items() if array.ndim}
        return {plain_name(name): shape for name, shape in shapes.items()}


def open_cached_graph(
    folder: Path, manifest: Manifest, record: ComponentRecord, config: ModelConfig, device: str
) -> CachedGraph:
    """Load a decode component. Raises ArtifactError."""
    model, compiled = open_model(folder, record)
    states = state_records(model)
    signature = read_signature(record, manifest, config, tuple(states.values()))
    if states:
        return StatefulGraph(compiled, signature, states)
    return StatelessGraph(compiled, signature)


def last_logits(request: openvino.InferRequest) -> NDArray[np.float32]:
    """The logits of the last position as float32, in the request's own memory if they are that."""
    tensor = request.get_tensor(LOGITS)
    if tensor.get_element_type() == openvino.Type.bf16:
        return to_array(tensor)[:, -1]
    logits: NDArray[np.float32] = tensor.data[:, -1]
    return logits.astype(np.float32, copy=False)
