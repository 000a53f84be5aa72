"""One file for the weights of all components, each tensor in it once."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Hashable
from pathlib import Path
from types import TracebackType

import numpy as np
import onnx_ir

from model_export.exporter.mapped_weights import release_mapped_pages

# The ONNX specification recommends offsets at multiples of a page: weights can then be mapped.
_ALIGNMENT = 4096
# So much of a mapped checkpoint may become resident before its pages are released again.
_RESIDENT_BYTES = 64 * 1024**2


class WeightsFile:
    """Writes tensors one after the other; equal bytes are written once and shared.

    Of the tensors' data at most one tensor is copied at a time, and only one that isn't contiguous:
    a folded `Transpose` of a weight is a view of the model's own memory.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._end = 0
        self._offsets: dict[bytes, int] = {}
        self._seen: dict[Hashable, tuple[int, int]] = {}
        # Memory that was seen stays alive, or another tensor could turn up at its address.
        self._kept: list[np.ndarray] = []
        self._resident = 0

    def __enter__(self) -> WeightsFile:
        self._file = self._path.open("wb")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def add(self, tensor: onnx_ir.TensorProtocol) -> onnx_ir.ExternalTensor:
        """The tensor as one that lies in this file; its bytes are there when this returns.

        Two tensors that are the same view of the same memory aren't even read twice.
        """
        # Any other tensor may be computed each time it's read.
        array = tensor.numpy() if isinstance(tensor, onnx_ir.Tensor) else None
        view = None if array is None else _view(array)
        place = self._seen.get(view)
        if place is None:
            place = self._write(_contiguous_bytes(tensor))
            if array is not None:
                self._seen[view] = place
                self._kept.append(array)
                self._release(array.nbytes)
        offset, length = place
        return onnx_ir.ExternalTensor(
            self._path.name,
            offset,
            length,
            tensor.dtype,
            shape=tensor.shape,
            name=tensor.name or "",
            base_dir=self._path.parent,
        )

    def _release(self, read: int) -> None:
        self._resident += read
        if self._resident > _RESIDENT_BYTES:
            release_mapped_pages(_address(array) for array in self._kept)
            self._resident = 0

    def _write(self, data: memoryview) -> tuple[int, int]:
        digest = hashlib.sha256(data).digest()
        if digest not in self._offsets:
            offset = -(-self._end // _ALIGNMENT) * _ALIGNMENT
            self._file.write(bytes(offset - self._end))
            self._file.write(data)
            self._offsets[digest] = offset
            self._end = offset + data.nbytes
        return self._offsets[digest], data.nbytes


def _view(array: np.ndarray) -> Hashable:
    """What memory an array shows, and how."""
    return (_address(array), array.shape, array.strides, str(array.dtype))


def _address(array: np.ndarray) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _contiguous_bytes(tensor: onnx_ir.TensorProtocol) -> memoryview:
    """The tensor's bytes as ONNX stores them: little-endian, row by row, small types packed."""
    if tensor.dtype.bitwidth < 8 or sys.byteorder == "big":
        return memoryview(tensor.tobytes())
    array = np.ascontiguousarray(tensor.numpy())
    return memoryview(array.reshape(-1).view(np.uint8))
