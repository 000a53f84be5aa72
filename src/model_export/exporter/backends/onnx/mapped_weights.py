"""Gives back the memory of weights that lie unread in a mapped checkpoint.

safetensors maps a checkpoint, and whatever of it was read counts as this process's memory until
someone else needs it. Tracing reads no weights, so their pages needn't stay resident beside the
graph: without this a 135M-parameter model peaks at 3.0 times its weights, 538 MB of them pages
that nobody reads. The next read brings a page back from the page cache.
"""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Iterable
from pathlib import Path

# madvise(2), the same on all Linux architectures.
_MADV_DONTNEED = 4
_SMAPS = Path("/proc/self/smaps")
# start-end, permissions, offset, device, inode, path.
_HEADER = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (\S{4}) \S+ \S+ \d+ +(/.*)")


def release_mapped_pages(addresses: Iterable[int]) -> int:
    """Drop the resident pages of the file mappings that `addresses` lie in; return their bytes.

    Only whole mappings without a page of their own are dropped: `madvise(MADV_DONTNEED)` would
    discard a page that was written to. Elsewhere than on Linux nothing happens.
    """
    if not sys.platform.startswith("linux"):
        return 0
    wanted = sorted(set(addresses))
    madvise = ctypes.CDLL(None, use_errno=True).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    released = 0
    for start, end in _clean_mappings():
        if any(start <= address < end for address in wanted):
            if madvise(start, end - start, _MADV_DONTNEED) != 0:
                raise OSError(ctypes.get_errno(), "madvise failed on a mapped checkpoint")
            released += end - start
    return released


def _clean_mappings() -> list[tuple[int, int]]:
    """Start and end of the file mappings of which this process has no private copy of any page."""
    found: list[tuple[int, int]] = []
    current: tuple[int, int] | None = None
    for line in _SMAPS.read_text(encoding="utf-8", errors="replace").splitlines():
        header = _HEADER.fullmatch(line)
        if header:
            current = (int(header[1], 16), int(header[2], 16))
        elif re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            current = None
        elif current and line.startswith("Anonymous:") and line.split()[1] == "0":
            found.append(current)
    return found
