"""Says how far a fetch is: what, how much, how long."""

from __future__ import annotations

import time
from collections.abc import Callable

from model_export.checkpoints.hub_fetch_request import shown_size

_EVERY_SECONDS = 5.0


class Progress:
    """Counts the bytes of a fetch of `total` bytes, and tells `say` at most every 5 seconds."""

    def __init__(
        self,
        total: int,
        say: Callable[[str], None],
        every_seconds: float = _EVERY_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._total = total
        self._say = say
        self._every = every_seconds
        self._clock = clock
        self._started = self._said = clock()
        self._there = 0
        self._fetched = 0

    def have(self, size: int) -> None:
        """`size` bytes, negative if they turned out wrong, that needed no network."""
        self._there += size

    def fetched(self, what: str, size: int) -> None:
        """`size` more bytes of the file `what` came from the hub."""
        self._there += size
        self._fetched += size
        now = self._clock()
        if now - self._said < self._every:
            return
        self._said = now
        rate = self._fetched / (now - self._started)
        left = max(self._total - self._there, 0) / rate
        self.note(
            f"{what}: {shown_size(self._there)} of {shown_size(self._total)}, "
            f"{shown_size(int(rate))}/s, {left:.0f} s left"
        )

    def note(self, line: str) -> None:
        """Say `line` at once."""
        self._say(line)

    def done(self) -> None:
        """Say what the whole fetch came to."""
        seconds = self._clock() - self._started
        self.note(
            f"{shown_size(self._fetched)} from the hub and "
            f"{shown_size(self._there - self._fetched)} from this machine in {seconds:.0f} s"
        )
