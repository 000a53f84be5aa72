"""Memory that is moved into huge pages, as the kernel itself counts them."""

from __future__ import annotations

import ctypes
import mmap
from pathlib import Path

import pytest

from model_export.runtime.huge_pages import (
    Mapping,
    anonymous_mappings,
    huge_pages,
    worth_moving,
)

MIB = 1 << 20
_SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_HAS_HUGE_PAGES = _SETTING.is_file() and "[never]" not in _SETTING.read_text()


def kernel_version() -> tuple[int, int]:
    major, minor = Path("/proc/sys/kernel/osrelease").read_text().split(".")[:2]
    return int(major), int(minor)


def mapping_of(memory: bytearray | mmap.mmap) -> Mapping:
    """Where the middle of `memory` lies."""
    view = ctypes.c_char.from_buffer(memory, len(memory) // 2)
    place = ctypes.addressof(view)
    del view
    (found,) = (each for each in anonymous_mappings() if each.start <= place < each.end)
    return found


def mapping(start: int, end: int, used: float = 1.0, huge: float = 0.0) -> Mapping:
    return Mapping(
        start * MIB, end * MIB, int((end - start) * used * MIB), int((end - start) * huge * MIB)
    )


needs_collapse = pytest.mark.skipif(
    not _HAS_HUGE_PAGES or kernel_version() < (6, 1), reason="the kernel can't collapse memory"
)


@needs_collapse
def test_what_the_body_fills_lies_in_huge_pages_and_says_the_same() -> None:
    # Not of numpy, which asks for huge pages itself.
    before = bytearray(b"before" * 10 * MIB)
    with huge_pages():
        weights = bytearray(b"weights!" * 8 * MIB)
    assert mapping_of(weights).huge >= 56 * MIB
    assert weights == b"weights!" * 8 * MIB
    # Not the body's: its memory stays as it is, unless the kernel joined both.
    if mapping_of(before) != mapping_of(weights):
        assert mapping_of(before).huge == 0


@needs_collapse
def test_what_is_freed_and_filled_again_lies_in_huge_pages_too() -> None:
    memory = mmap.mmap(-1, 64 * MIB, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with huge_pages():
        memory[:] = b"1" * len(memory)
    # As malloc gives memory back, and takes it again.
    memory.madvise(mmap.MADV_DONTNEED)
    with huge_pages():
        memory[:] = b"2" * len(memory)
    assert mapping_of(memory).huge >= 56 * MIB
    assert memory[:] == b"2" * len(memory)
    memory.close()


def test_a_mapping_that_has_changed_is_moved() -> None:
    before = [mapping(10, 14), mapping(20, 24), mapping(30, 34, huge=1.0)]
    after = [mapping(10, 14), mapping(20, 26), mapping(30, 34, huge=0.5), mapping(40, 44)]
    assert [each.start // MIB for each in worth_moving(before, after)] == [20, 30, 40]


def test_what_is_hardly_used_or_huge_already_stays() -> None:
    after = [mapping(0, 10, used=0.5), mapping(20, 30, huge=1.0), mapping(40, 50)]
    assert [each.start // MIB for each in worth_moving([], after)] == [40]
