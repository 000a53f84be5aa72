"""Memory that is moved into huge pages, as the kernel itself counts them."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from model_export.runtime.huge_pages import (
    Mapping,
    anonymous_mappings,
    huge_pages,
    new_ranges,
)

MIB = 1 << 20
_SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_HAS_HUGE_PAGES = _SETTING.is_file() and "[never]" not in _SETTING.read_text()


def kernel_version() -> tuple[int, int]:
    major, minor = Path("/proc/sys/kernel/osrelease").read_text().split(".")[:2]
    return int(major), int(minor)


def mapping_of(memory: bytearray) -> Mapping:
    """Where the middle of `memory` lies."""
    place = ctypes.addressof(ctypes.c_char.from_buffer(memory, len(memory) // 2))
    (found,) = (each for each in anonymous_mappings() if each.start <= place < each.end)
    return found


def mapping(start: int, end: int, used: float = 1.0, huge: float = 0.0) -> Mapping:
    return Mapping(
        start * MIB, end * MIB, int((end - start) * used * MIB), int((end - start) * huge * MIB)
    )


@pytest.mark.skipif(
    not _HAS_HUGE_PAGES or kernel_version() < (6, 1), reason="the kernel can't collapse memory"
)
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


def test_a_mapping_that_has_grown_is_new_where_it_has() -> None:
    before = [mapping(10, 14), mapping(20, 24)]
    after = [mapping(6, 30), mapping(40, 44)]
    ranges = [(start // MIB, end // MIB) for start, end in new_ranges(before, after)]
    assert ranges == [(6, 10), (14, 20), (24, 30), (40, 44)]


def test_what_is_hardly_used_or_huge_already_stays() -> None:
    after = [mapping(0, 10, used=0.5), mapping(20, 30, huge=1.0), mapping(40, 50)]
    assert [start // MIB for start, _ in new_ranges([], after)] == [40]
