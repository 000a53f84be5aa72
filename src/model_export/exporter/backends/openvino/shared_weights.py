"""One `.bin` for the constants of several IR files, each constant in it once."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

# Every constant starts at a multiple of this: a vector register, and more than any element.
_ALIGNMENT = 64
_CHUNK_BYTES = 1 << 20

# A constant's layer as OpenVINO 2026.3.1 writes it. A '>' in an attribute isn't escaped there, a
# quote is.
_ATTRIBUTES = r'(?:\s+\w+="[^"]*")*?'
_CONSTANT = re.compile(
    rf'(<layer{_ATTRIBUTES}\s+type="Const"{_ATTRIBUTES}\s*>\s*<data{_ATTRIBUTES}\s+)'
    r'offset="(\d+)" size="(\d+)"'
)
_CONSTANT_TYPE = ' type="Const"'


def share_weights(graphs: Sequence[Path], shared: Path) -> None:
    """Move the constants of `graphs` (each an `.xml` beside its `.bin`) into the file `shared`.

    The `.bin` files are removed. A graph is then read with
    `Core().read_model(xml, weights=shared)`. Constants are compared by sha256 and copied 1 MiB at a
    time: a mapping's pages would count as this process's memory.

    Raises ValueError if a graph has a constant that isn't written the way this reads it.
    """
    offsets: dict[bytes, int] = {}
    with shared.open("wb") as file:
        for xml in graphs:
            own = xml.with_suffix(".bin")
            text = xml.read_text(encoding="utf-8")
            xml.write_text(_move(text, xml.name, own, file, offsets), encoding="utf-8")
            own.unlink()


def _move(text: str, name: str, own: Path, file: BinaryIO, offsets: dict[bytes, int]) -> str:
    constants = len(_CONSTANT.findall(text))
    layers = text.count(_CONSTANT_TYPE)
    if constants != layers:
        raise ValueError(f"{name} has {layers} constants, and {constants} with offset and size")
    if own.stat().st_size == 0:
        return text

    with own.open("rb") as source:

        def move(match: re.Match[str]) -> str:
            start, size = int(match.group(2)), int(match.group(3))
            offset = _place(source, start, size, file, offsets)
            return f'{match.group(1)}offset="{offset}" size="{size}"'

        return _CONSTANT.sub(move, text)


def _place(
    source: BinaryIO, start: int, size: int, file: BinaryIO, offsets: dict[bytes, int]
) -> int:
    hasher = hashlib.sha256()
    for chunk in _chunks(source, start, size):
        hasher.update(chunk)
    digest = hasher.digest()
    if digest not in offsets:
        end = file.tell()
        offset = -(-end // _ALIGNMENT) * _ALIGNMENT
        file.write(bytes(offset - end))
        for chunk in _chunks(source, start, size):
            file.write(chunk)
        offsets[digest] = offset
    return offsets[digest]


def _chunks(source: BinaryIO, start: int, size: int) -> Iterator[bytes]:
    """The bytes of `source` from `start`, `size` of them, 1 MiB at a time."""
    source.seek(start)
    while size > 0:
        chunk = source.read(min(size, _CHUNK_BYTES))
        if not chunk:
            raise ValueError(f"{source.name} ends before a constant that its graph places there")
        size -= len(chunk)
        yield chunk
