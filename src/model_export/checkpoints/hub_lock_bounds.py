"""Bounds on what a hub may send to a lock process: bytes and seconds for each answer."""

from __future__ import annotations

import time
from collections.abc import Iterator

import httpx2
from huggingface_hub import get_session

# Between two packets, and for a whole answer: a hub that drips a byte a second keeps the first.
STEP_SECONDS = 30.0
ANSWER_SECONDS = 120.0
# A description of 100,000 files is 30 MB; git files are at most 10 MB on the hub.
ANSWER_BYTES = 128 << 20


class BoundExceededError(Exception):
    """An answer that goes on too long: what of it, as a clause."""


def too_long(seconds: float) -> BoundExceededError:
    """The error for an answer that takes longer than this."""
    return BoundExceededError(f"an answer takes longer than {seconds:.0f} s")


def bound_answers(seconds: float = ANSWER_SECONDS, size: int = ANSWER_BYTES) -> None:
    """Let every answer to huggingface_hub's client end in BoundExceededError past these bounds."""

    def bound(response: httpx2.Response) -> None:
        if isinstance(response.stream, httpx2.SyncByteStream):
            response.stream = _BoundedStream(response.stream, seconds, size)

    client = get_session()
    hooks = client.event_hooks
    client.event_hooks = {**hooks, "response": [bound]}


class _BoundedStream(httpx2.SyncByteStream):
    def __init__(self, stream: httpx2.SyncByteStream, seconds: float, size: int) -> None:
        self._stream = stream
        self._seconds = seconds
        self._size = size

    def __iter__(self) -> Iterator[bytes]:
        deadline = time.monotonic() + self._seconds
        left = self._size
        for chunk in self._stream:
            left -= len(chunk)
            if left < 0:
                raise BoundExceededError(f"an answer is longer than {self._size} bytes")
            if time.monotonic() > deadline:
                raise too_long(self._seconds)
            yield chunk

    def close(self) -> None:
        self._stream.close()
