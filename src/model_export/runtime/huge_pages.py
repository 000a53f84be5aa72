"""Weights in huge pages: a decoder reads all of its weights for every token.

Two cores that read 500 MB in pages of 4 KiB spend about a tenth of the time on looking the pages
up. Runtimes allocate what they pack with malloc, which asks for huge pages only if the environment
said so when the process started (GLIBC_TUNABLES=glibc.malloc.hugetlb=1).
"""

from __future__ import annotations

import contextlib
import ctypes
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_SETTINGS = Path("/sys/kernel/mm/transparent_hugepage")
_MAPPINGS = Path("/proc/self/smaps")
# Copies what a range holds into huge pages, at once (linux/mman.h, since Linux 6.1).
_MADV_COLLAPSE = 25
# What mallopt calls M_MMAP_THRESHOLD and M_TRIM_THRESHOLD (glibc's malloc.h), and the most that
# malloc itself raises them to, once a program frees large blocks.
_MALLOC_LIMITS = {-3: 32 << 20, -1: 64 << 20}
# A huge page of which less is used would take more memory than it saves time.
_LEAST_RESIDENT = 0.9

_MAPPING = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (\S{4}) \S+ \S+ (\d+)")


@dataclass(frozen=True)
class Mapping:
    """Anonymous memory that this process may write, from `start` to `end`, `resident` bytes used.

    `huge` of those bytes lie in huge pages already.
    """

    start: int
    end: int
    resident: int
    huge: int


@contextlib.contextmanager
def huge_pages() -> Iterator[None]:
    """Move what the body allocates, and fills, into huge pages: some 0.6 s a GB.

    Does nothing where the system has none, has turned them off, or is too old to be asked.
    """
    size = _page_size()
    if size is None:
        yield
        return
    libc = ctypes.CDLL(None)
    mallopt = getattr(libc, "mallopt", None)
    if mallopt is not None:
        # Weights of 3 MB side by side: in a mapping of its own each would have one huge page.
        for parameter, limit in _MALLOC_LIMITS.items():
            mallopt(parameter, limit)
    before = anonymous_mappings()
    yield
    madvise = libc.madvise
    for mapping in worth_moving(before, anonymous_mappings()):
        start, end = -(-mapping.start // size) * size, mapping.end // size * size
        if start < end:
            # What it answers doesn't matter: where it can't, the pages stay as they are.
            madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _MADV_COLLAPSE)


def anonymous_mappings() -> list[Mapping]:
    """What this process has mapped that belongs to no file, in order of the addresses."""
    found: list[Mapping] = []
    place: tuple[int, int] | None = None
    sizes: dict[str, int] = {}
    for line in _MAPPINGS.read_text(encoding="utf-8", errors="replace").splitlines():
        match = _MAPPING.match(line)
        if match is not None:
            anonymous = match[4] == "0" and "w" in match[3] and "[stack" not in line
            place = (int(match[1], 16), int(match[2], 16)) if anonymous else None
            continue
        name, _, value = line.partition(":")
        if name in ("Rss", "AnonHugePages"):
            sizes[name] = int(value.split()[0]) * 1024
        elif name == "VmFlags" and place is not None:
            found.append(Mapping(*place, sizes["Rss"], sizes["AnonHugePages"]))
    return found


def worth_moving(before: list[Mapping], after: list[Mapping]) -> Iterator[Mapping]:
    """Those of `after` that aren't as they were `before`, mostly in use, and not huge yet.

    Whole ones: the kernel joins neighbouring mappings, and malloc fills again what was freed.
    """
    same = set(before)
    for mapping in after:
        size = mapping.end - mapping.start
        if mapping in same or mapping.resident < _LEAST_RESIDENT * size:
            continue
        if mapping.huge < _LEAST_RESIDENT * size:
            yield mapping


def _page_size() -> int | None:
    """Bytes of a huge page; None without any."""
    size, enabled = _SETTINGS / "hpage_pmd_size", _SETTINGS / "enabled"
    if not size.is_file() or "[never]" in enabled.read_text():
        return None
    return int(size.read_text())
