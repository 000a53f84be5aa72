"""One cache tensor each: where it lies, and how a call's output becomes the next call's input.

An attention cache of a static length has one buffer, which is input and output at once: the graph
writes the new positions into it. A growing one has two of the full capacity, and changes sides with
every call, because the graph copies the old positions to the start of the longer output. Other
states change sides as well: their output is computed from several reads of the input.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from model_export.runtime.decoders.cache_tensors import CacheKind, CacheTensor
from model_export.runtime.decoders.cached.onnx_binding import (
    Binding,
    Memory,
    storage_dtype,
    to_storage,
)
from model_export.runtime.decoders.signature import Signature
from model_export.runtime.graph import Array


class Slot(ABC):
    """A cache tensor of one session."""

    def __init__(self, tensor: CacheTensor, device: str) -> None:
        self.tensor = tensor
        self.shape: tuple[int, ...] = ()
        self._device = device
        self._dtype = tensor.input.dtype
        self._storage = storage_dtype(tensor.input.dtype)

    @abstractmethod
    def clear(self, batch: int, capacity: int) -> None:
        """Empty, with room for `capacity` positions in each of `batch` sequences."""

    @abstractmethod
    def fill(self, array: Array) -> None:
        """Take over a prefill's values."""

    @abstractmethod
    def bind(self, binding: Binding, new: int) -> None:
        """Bind input and output for a call with `new` tokens."""

    @abstractmethod
    def advance(self, new: int) -> None:
        """Make the output of the call that has run the next input."""

    @abstractmethod
    def reorder(self, rows: NDArray[np.int64]) -> None:
        """Continue with the sequences `rows`."""

    def _memory(self, shape: tuple[int, ...]) -> Memory:
        return Memory(math.prod(shape) * self._storage.itemsize, self._device)


class ScalarSlot(Slot):
    """A number; too small to be worth a buffer that is read and written at once."""

    def __init__(self, tensor: CacheTensor, device: str) -> None:
        super().__init__(tensor, device)
        self._before = np.array(tensor.number, self._storage)
        self._after = np.array(tensor.number, self._storage)

    def clear(self, batch: int, capacity: int) -> None:
        self._before[...] = self.tensor.number

    def fill(self, array: Array) -> None:
        self._before[...] = array

    def bind(self, binding: Binding, new: int) -> None:
        binding.bind_input(self.tensor.input.name, self._dtype, self._before)
        if self.tensor.output is not None:
            binding.bind_output(
                self.tensor.output.name, self._dtype, (), self._after.ctypes.data, "cpu"
            )

    def advance(self, new: int) -> None:
        if self.tensor.output is not None:
            self._before[...] = self._after

    def reorder(self, rows: NDArray[np.int64]) -> None:
        """Nothing: it holds for all sequences."""


class FixedSlot(Slot):
    """A tensor of one size: one buffer if `in_place`, otherwise two that change sides."""

    def __init__(self, tensor: CacheTensor, device: str, in_place: bool) -> None:
        super().__init__(tensor, device)
        self._count = 1 if in_place else 2
        self._memories: list[Memory] = []

    def clear(self, batch: int, capacity: int) -> None:
        before, self.shape = self.shape, (batch, *self.tensor.sizes)
        if before == self.shape:
            for memory in self._memories:
                memory.clear()
        else:
            self._memories = [self._memory(self.shape) for _ in range(self._count)]

    def fill(self, array: Array) -> None:
        self._memories[0].write(to_storage(array, self._dtype))

    def bind(self, binding: Binding, new: int) -> None:
        before, after = self._memories[0], self._memories[-1]
        binding.bind_state(self.tensor.input.name, self._dtype, self.shape, before)
        if self.tensor.output is not None:
            binding.bind_output(
                self.tensor.output.name, self._dtype, self.shape, after.address, self._device
            )

    def advance(self, new: int) -> None:
        self._memories.reverse()

    def reorder(self, rows: NDArray[np.int64]) -> None:
        chosen = self._memories[0].read(self._storage, self.shape)[rows]
        if len(rows) != self.shape[0]:
            self.clear(len(rows), 0)
        self._memories[0].write(chosen)


class GrowingSlot(Slot):
    """[batch, heads, positions, head_dim], every call's tokens added at the end."""

    def __init__(self, tensor: CacheTensor, device: str) -> None:
        super().__init__(tensor, device)
        self._capacity = 0
        self._whole: tuple[int, ...] = ()
        self._memories: list[Memory] = []

    def clear(self, batch: int, capacity: int) -> None:
        self._capacity = capacity
        heads, _, head_dim = self.tensor.sizes
        self.shape = (batch, heads, 0, head_dim)
        whole = (batch, heads, capacity, head_dim)
        # Nothing reads what an earlier batch has left behind the positions that are filled.
        if self._whole != whole:
            self._whole = whole
            self._memories = [self._memory(whole) for _ in range(2)]

    def fill(self, array: Array) -> None:
        self._memories[0].write(to_storage(array, self._dtype))
        self.shape = array.shape

    def bind(self, binding: Binding, new: int) -> None:
        before, after = self._memories
        binding.bind_state(self.tensor.input.name, self._dtype, self.shape, before)
        assert self.tensor.output is not None
        binding.bind_output(
            self.tensor.output.name, self._dtype, self._longer(new), after.address, self._device
        )

    def advance(self, new: int) -> None:
        self._memories.reverse()
        self.shape = self._longer(new)

    def reorder(self, rows: NDArray[np.int64]) -> None:
        shape = (len(rows), *self.shape[1:])
        chosen = self._memories[0].read(self._storage, self.shape)[rows]
        if len(rows) != self.shape[0]:
            self.clear(len(rows), self._capacity)
        self._memories[0].write(chosen)
        self.shape = shape

    def _longer(self, new: int) -> tuple[int, ...]:
        batch, heads, past, head_dim = self.shape
        return (batch, heads, past + new, head_dim)


class CrossSlot(Slot):
    """Of the encoder's tokens: the prefill gives it, and no call changes it."""

    def __init__(self, tensor: CacheTensor, device: str) -> None:
        super().__init__(tensor, device)
        self._memories: list[Memory] = []

    def clear(self, batch: int, capacity: int) -> None:
        self.shape = ()

    def fill(self, array: Array) -> None:
        self.shape = array.shape
        self._memories = [self._memory(self.shape)]
        self._memories[0].write(to_storage(array, self._dtype))

    def bind(self, binding: Binding, new: int) -> None:
        binding.bind_state(self.tensor.input.name, self._dtype, self.shape, self._memories[0])

    def advance(self, new: int) -> None:
        """Nothing: it is the same for the next call."""

    def reorder(self, rows: NDArray[np.int64]) -> None:
        chosen = self._memories[0].read(self._storage, self.shape)[rows]
        self.shape = chosen.shape
        self._memories = [self._memory(self.shape)]
        self._memories[0].write(chosen)


def make_slots(signature: Signature, device: str) -> tuple[Slot, ...]:
    """A slot for each cache tensor of a decode graph."""
    return tuple(_make_slot(tensor, device) for tensor in signature.cache)


def _make_slot(tensor: CacheTensor, device: str) -> Slot:
    if tensor.kind is CacheKind.SCALAR:
        return ScalarSlot(tensor, device)
    if tensor.kind is CacheKind.CROSS:
        return CrossSlot(tensor, device)
    if tensor.kind is CacheKind.GROWING:
        return GrowingSlot(tensor, device)
    return FixedSlot(tensor, device, in_place=tensor.kind is CacheKind.STATIC)
