"""ONNX Runtime's io-binding by address, and memory to bind on the device that computes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from model_export.runtime.graph import Array, numpy_dtype
from model_export.runtime.graphs.bfloat16 import from_bits, to_bits

# onnx.TensorProto.DataType: the onnx package isn't needed for numbers.
_ONNX_TYPES = {
    "float32": 1,
    "uint8": 2,
    "int8": 3,
    "int16": 5,
    "int32": 6,
    "int64": 7,
    "bool": 9,
    "float16": 10,
    "float64": 11,
    "bfloat16": 16,
}
# A cache line, and the widest vector register.
_ALIGNMENT = 64


class Binding:
    """The inputs and outputs of a session, bound to memory that its owner keeps alive."""

    def __init__(self, session: onnxruntime.InferenceSession, device: str) -> None:
        self.device = device
        self._session = session
        self._binding = session.io_binding()
        self._bound: dict[str, tuple[int, tuple[int, ...]]] = {}

    def bind_input(self, name: str, dtype: str, array: Array) -> None:
        """Bind a contiguous array in the CPU's memory; `dtype` is the record's."""
        self._bind(name, dtype, array.shape, array.ctypes.data, "cpu", self._binding.bind_input)

    def bind_state(self, name: str, dtype: str, shape: Sequence[int], memory: Memory) -> None:
        """Bind a tensor at the start of `memory` as an input."""
        self._bind(name, dtype, tuple(shape), memory.address, self.device, self._binding.bind_input)

    def bind_output(
        self, name: str, dtype: str, shape: Sequence[int], address: int, device: str
    ) -> None:
        """Have an output of exactly this shape written to `address`."""
        place = (address, tuple(shape))
        if self._bound.get(name) != place:
            self._binding.bind_output(name, device, 0, _ONNX_TYPES[dtype], list(shape), address)
            self._bound[name] = place

    def run(self) -> None:
        """Call the session with what is bound."""
        self._session.run_with_iobinding(self._binding)

    def _bind(
        self, name: str, dtype: str, shape: tuple[int, ...], address: int, device: str, bind: Any
    ) -> None:
        place = (address, shape)
        # What lies in another memory than the session's is copied when it's bound.
        if self._bound.get(name) != place or device != self.device:
            bind(name, device, 0, _ONNX_TYPES[dtype], list(shape), address)
            self._bound[name] = place


class Memory:
    """Bytes on "cpu" or "cuda", zero at first."""

    def __init__(self, size: int, device: str) -> None:
        self._size = size
        self._device: onnxruntime.OrtValue | None = None
        self._host: NDArray[np.uint8] | None = None
        if device == "cpu":
            raw = np.zeros(size + _ALIGNMENT, np.uint8)
            start = -raw.ctypes.data % _ALIGNMENT
            self._host = raw[start : start + size]
            self.address = self._host.ctypes.data
        else:
            self._device = onnxruntime.OrtValue.ortvalue_from_numpy(
                np.zeros(max(size, 1), np.uint8), device, 0
            )
            self.address = self._device.data_ptr()

    def clear(self) -> None:
        """Make every byte zero again."""
        if self._host is not None:
            self._host[...] = 0
        else:
            self.write(np.zeros(0, np.uint8))

    def read(self, dtype: np.dtype[Any], shape: Sequence[int]) -> Array:
        """What lies at the start: a view on the CPU, a copy from another device."""
        size = math.prod(shape) * dtype.itemsize
        raw = self._host if self._device is None else self._device.numpy()
        assert raw is not None
        return raw[:size].view(dtype).reshape(shape)

    def write(self, array: Array) -> None:
        """Put the bytes of `array` at the start."""
        if self._host is not None:
            self.read(array.dtype, array.shape)[...] = array
            return
        assert self._device is not None
        whole = np.zeros(max(self._size, 1), np.uint8)
        whole[: array.nbytes].view(array.dtype).reshape(array.shape)[...] = array
        self._device.update_inplace(whole)


def storage_dtype(dtype: str) -> np.dtype[Any]:
    """The numpy dtype of a tensor's memory: uint16 for bfloat16, which numpy doesn't have."""
    return np.dtype(np.uint16) if dtype == "bfloat16" else numpy_dtype(dtype)


def to_storage(array: Array, dtype: str) -> Array:
    """Float32 values as the memory of a bfloat16 tensor; anything else as it is."""
    return to_bits(array) if dtype == "bfloat16" else array


def as_float32(array: Array, dtype: str, out: NDArray[np.float32]) -> NDArray[np.float32]:
    """The values in the memory of a tensor of `dtype`, copied to `out`."""
    out[...] = from_bits(array) if dtype == "bfloat16" else array
    return out
