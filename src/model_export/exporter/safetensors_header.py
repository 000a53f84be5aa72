"""Reads and checks the header of a safetensors file, before anything maps its tensors.

The format: eight bytes with the header's length (little endian), the header as a JSON object
`{name: {"dtype", "shape", "data_offsets"}}`, and the tensors' bytes, which cover the rest of the
file without holes or overlaps. `safetensors` says of a bad file which rule it breaks, but not
where. Standard library only.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Bits an element, by the names of the format's reference implementation (safetensors 0.8.0).
BITS = {
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "BOOL": 8,
    "U8": 8,
    "I8": 8,
    "F8_E4M3": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2": 8,
    "F8_E5M2FNUZ": 8,
    "F8_E8M0": 8,
    "I16": 16,
    "U16": 16,
    "F16": 16,
    "BF16": 16,
    "I32": 32,
    "U32": 32,
    "F32": 32,
    "C64": 64,
    "I64": 64,
    "U64": 64,
    "F64": 64,
}
MAX_HEADER_BYTES = 100_000_000
LENGTH_BYTES = 8


class SafetensorsError(ValueError):
    """A file that breaks the format; the message is one clause without the file's name."""


@dataclass(frozen=True)
class TensorEntry:
    """A tensor of a safetensors file: dtype in the format's spelling, shape, and the first and
    one-past-last byte of its data, counted from the start of the file."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def read_header(path: Path) -> dict[str, TensorEntry]:
    """Every tensor of a safetensors file, by name; reads the header and no tensor.

    Raises SafetensorsError for a file that breaks the format: truncated, a length or an offset
    outside the file, overlaps, holes, an unknown dtype, a header that isn't such a JSON object.
    """
    size = path.stat().st_size
    if size < LENGTH_BYTES:
        raise SafetensorsError(f"is truncated: {size} bytes, and the header alone needs more")
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(LENGTH_BYTES))
        if length > MAX_HEADER_BYTES:
            raise SafetensorsError(
                f"announces a header of {length} bytes (at most {MAX_HEADER_BYTES}): "
                "not a safetensors file, or damaged"
            )
        if LENGTH_BYTES + length > size:
            raise SafetensorsError(
                f"is truncated: it announces a header of {length} bytes and has {size} in all"
            )
        header = _parse(file.read(length))
    start = LENGTH_BYTES + length
    entries = {name: _entry(name, item, start) for name, item in header.items()}
    _check_cover(entries, start, size)
    return entries


def _parse(text: bytes) -> dict[str, Any]:
    try:
        header = json.loads(text.decode("utf-8"), object_pairs_hook=_unique)
    except UnicodeDecodeError as error:
        raise SafetensorsError("has a header that isn't UTF-8: damaged") from error
    except json.JSONDecodeError as error:
        raise SafetensorsError(f"has a header that isn't JSON ({error}): damaged") from error
    if not isinstance(header, dict):
        raise SafetensorsError("has a header that isn't a JSON object")
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise SafetensorsError("has `__metadata__` that isn't an object of strings")
    return header


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = dict(pairs)
    if len(names) != len(pairs):
        raise SafetensorsError("has a header that names a tensor twice")
    return names


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _entry(name: str, item: Any, start: int) -> TensorEntry:
    fields = item if isinstance(item, dict) else {}
    dtype, shape = fields.get("dtype"), fields.get("shape")
    offsets = fields.get("data_offsets")
    if dtype not in BITS:
        raise SafetensorsError(f"has a tensor `{name}` of unknown dtype {dtype!r}")
    if not isinstance(shape, list) or not all(_is_size(extent) for extent in shape):
        raise SafetensorsError(f"has a tensor `{name}` with the shape {shape!r}")
    if (
        not isinstance(offsets, list)
        or len(offsets) != 2
        or not all(_is_size(offset) for offset in offsets)
    ):
        raise SafetensorsError(f"has a tensor `{name}` with the data offsets {offsets!r}")
    begin, end = offsets
    bits = math.prod(shape) * BITS[dtype]
    if bits % 8 or end - begin != bits // 8:
        raise SafetensorsError(
            f"has a tensor `{name}` whose data offsets {offsets} hold {end - begin} bytes, "
            f"where {dtype} {shape} takes {bits / 8:g}"
        )
    return TensorEntry(dtype, tuple(shape), start + begin, start + end)


def _check_cover(entries: Mapping[str, TensorEntry], start: int, size: int) -> None:
    """Raise SafetensorsError unless the tensors cover the file from `start` to its end once."""
    end, previous = start, ""
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].begin, item[1].end)):
        if entry.begin < end:
            raise SafetensorsError(f"has tensors that overlap: `{previous}` and `{name}`")
        if entry.begin > end:
            raise SafetensorsError(
                f"has a hole of {entry.begin - end} bytes before the tensor `{name}`"
            )
        end, previous = entry.end, name
    if end > size:
        raise SafetensorsError(f"is truncated: {size} bytes of {end}")
    if end < size:
        raise SafetensorsError(f"has {size - end} bytes after its last tensor")
