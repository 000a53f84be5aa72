"""One `.bin` for the constants of several IR files, each constant in it once."""

from __future__ import annotations

import hashlib
import mmap
import re
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

# Every constant starts at a multiple of this: a vector register, and more than any element.
_ALIGNMENT = 64

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
    `Core().read_model(xml, weights=shared)`. Constants are compared by sha256 and copied from a
    mapping, one at a time.

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

    with (
        own.open("rb") as source,
        mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
        memoryview(mapped) as content,
    ):

        def move(match: re.Match[str]) -> str:
            start, size = int(match.group(2)), int(match.group(3))
            with content[start : start + size] as data:
                offset = _place(data, file, offsets)
            return f'{match.group(1)}offset="{offset}" size="{size}"'

        return _CONSTANT.sub(move, text)


def _place(data: memoryview, file: BinaryIO, offsets: dict[bytes, int]) -> int:
    digest = hashlib.sha256(data).digest()
    if digest not in offsets:
        end = file.tell()
        offset = -(-end // _ALIGNMENT) * _ALIGNMENT
        file.write(bytes(offset - end))
        file.write(data)
        offsets[digest] = offset
    return offsets[digest]
