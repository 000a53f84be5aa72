"""Writes a safetensors file one tensor at a time, which `safetensors` itself (0.8.0) can't."""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from model_export.exporter.safetensors_header import BITS, LENGTH_BYTES, SafetensorsError


class SafetensorsWriter:
    """Writes a safetensors file one tensor at a time, in any order.

    `tensors` maps each name to its dtype (the format's spelling) and shape. The bytes depend on
    these and the data alone: tensors lie in the order of `safetensors`, larger elements first,
    then by name. Leaving the `with` block raises SafetensorsError if a tensor wasn't written.
    """

    def __init__(self, path: Path, tensors: Mapping[str, tuple[str, tuple[int, ...]]]) -> None:
        order = sorted(tensors, key=lambda name: (-BITS[tensors[name][0]], tensors[name][0], name))
        header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
        self._spans: dict[str, tuple[int, int]] = {}
        offset = 0
        for name in order:
            dtype, shape = tensors[name]
            end = offset + math.prod(shape) * BITS[dtype] // 8
            header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [offset, end]}
            self._spans[name] = (offset, end)
            offset = end
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
        # The reference implementation pads with spaces, so that the data is aligned to 8 bytes.
        text += b" " * (-len(text) % 8)
        self._start = LENGTH_BYTES + len(text)
        self._missing = set(order)
        self._file = path.open("wb")
        self._file.write(struct.pack("<Q", len(text)) + text)
        self._file.truncate(self._start + offset)

    def write(self, name: str, data: memoryview) -> None:
        """Write a tensor's bytes (little endian, row-major); raises SafetensorsError for a name
        that wasn't announced or was written before, or for another number of bytes."""
        if name not in self._missing:
            raise SafetensorsError(f"has no place for the tensor `{name}`, or has it already")
        begin, end = self._spans[name]
        if data.nbytes != end - begin:
            raise SafetensorsError(
                f"keeps {end - begin} bytes for the tensor `{name}`, which has {data.nbytes}"
            )
        self._file.seek(self._start + begin, os.SEEK_SET)
        self._file.write(data)
        self._missing.remove(name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()
        if kind is None and self._missing:
            names = ", ".join(f"`{name}`" for name in sorted(self._missing)[:3])
            raise SafetensorsError(f"lacks {len(self._missing)} tensors: {names}, ...")
