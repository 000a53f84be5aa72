"""Ways in which the test hub misbehaves on order.

Python 3.9, because the plugin's tests run the hub too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Union


@dataclass(frozen=True)
class Status:
    """Answer with this status and these headers in place of the right answer."""

    code: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True)
class Stall:
    """Send nothing more after so many bytes of the body; -1: not even a status line."""

    after: int = -1


@dataclass(frozen=True)
class Cut:
    """Close the connection after so many bytes of the body; -1: before the status line."""

    after: int = -1


@dataclass(frozen=True)
class Slow:
    """Send the body at this speed."""

    bytes_per_second: int


@dataclass(frozen=True)
class Corrupt:
    """Send a body of the right size whose byte at `position` is another."""

    position: int = 0


@dataclass(frozen=True)
class WrongSize:
    """Be off by `difference` in the size of a file, in the headers of its answer."""

    difference: int


@dataclass(frozen=True)
class IgnoreRange:
    """Answer a request for a range with the whole file."""


@dataclass(frozen=True)
class RedirectLoop:
    """Redirect to the same address."""


@dataclass(frozen=True)
class Json:
    """Change the document of an API answer before it is sent."""

    change: Callable[[object], object]


@dataclass(frozen=True)
class Before:
    """Do something, such as moving a branch, and then answer rightly."""

    action: Callable[[], object]


Fault = Union[Status, Stall, Cut, Slow, Corrupt, WrongSize, IgnoreRange, RedirectLoop, Json, Before]


@dataclass
class Order:
    """A fault for the next `times` requests whose path matches the pattern `path`."""

    fault: Fault
    path: str
    methods: tuple[str, ...]
    times: int
