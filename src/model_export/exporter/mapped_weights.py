"""Gives back the memory of weights that lie unread in a mapped checkpoint.

safetensors maps a checkpoint, and whatever of it was read counts as this process's memory until
someone else needs it. Running a model reads each weight once, tracing reads none, so their pages
needn't all stay resident beside torch and the graph: without this the ONNX export of a
135M-parameter model has 538 MB of pages that nobody reads, of a peak of 1.6 GB. The next read
brings a page back from the page cache.
"""

from __future__ import annotations

import ctypes
import mmap
import re
import sys
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch

# madvise(2), the same on all Linux architectures.
_MADV_DONTNEED = 4
_MAPS, _PAGEMAP = Path("/proc/self/maps"), Path("/proc/self/pagemap")
# start-end, permissions, offset, device, inode, path.
_FILE_MAPPING = re.compile(r"([0-9a-f]+)-([0-9a-f]+) \S{4} \S+ \S+ \d+ +/")
# Bits of a page's entry in /proc/self/pagemap.
_PRESENT, _SWAPPED, _FILE_PAGE = np.uint64(1 << 63), np.uint64(1 << 62), np.uint64(1 << 61)


def release_mapped_pages(addresses: Iterable[int]) -> int:
    """Drop the resident pages of the file mappings that `addresses` lie in; return their bytes.

    Only whole mappings without a page of their own are dropped: `madvise(MADV_DONTNEED)` would
    discard a page that was written to. Elsewhere than on Linux nothing happens.
    """
    if not sys.platform.startswith("linux"):
        return 0
    madvise = ctypes.CDLL(None, use_errno=True).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    released = 0
    for start, end in _mappings_of(set(addresses)):
        if _only_file_pages(start, end):
            if madvise(start, end - start, _MADV_DONTNEED) != 0:
                raise OSError(ctypes.get_errno(), "madvise failed on a mapped checkpoint")
            released += end - start
    return released


@contextmanager
def released_weights(model: torch.nn.Module) -> Iterator[None]:
    """Release what the block has read of `model`'s mapped weights, when it ends.

    Once for a whole generation: released more often, every token would fault all of them in again,
    which took longer than the arithmetic of a 135M-parameter model.
    """
    try:
        yield
    finally:
        release_mapped_pages(parameter.data_ptr() for parameter in model.parameters())


def _mappings_of(addresses: set[int]) -> list[tuple[int, int]]:
    """Start and end of the file mappings that one of `addresses` lies in."""
    headers = map(_FILE_MAPPING.match, _MAPS.read_text(errors="replace").splitlines())
    ranges = [(int(header[1], 16), int(header[2], 16)) for header in headers if header]
    ordered = sorted(addresses)
    return [
        (start, end)
        for start, end in ranges
        if bisect_left(ordered, start) < bisect_left(ordered, end)
    ]


def _only_file_pages(start: int, end: int) -> bool:
    """Whether no page was written to: that would have made it this process's own."""
    with _PAGEMAP.open("rb", buffering=0) as file:
        file.seek(start // mmap.PAGESIZE * 8)
        entries = np.frombuffer(file.read((end - start) // mmap.PAGESIZE * 8), np.uint64)
    swapped = (entries & _SWAPPED) != 0
    own = ((entries & _PRESENT) != 0) & ((entries & _FILE_PAGE) == 0)
    complete = len(entries) == (end - start) // mmap.PAGESIZE
    return complete and not bool((swapped | own).any())
