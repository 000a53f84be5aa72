"""The errors of the runtime, each with what to do about it."""

from __future__ import annotations


class RuntimeModelError(Exception):
    """Something that a loaded artifact can't do: what, why and the remedy, in one line."""


class ArtifactError(RuntimeModelError):
    """A folder that is no artifact this runtime can load."""


class InputError(RuntimeModelError):
    """An input that the artifact doesn't take, by name, dtype or shape."""


def first_line(error: BaseException) -> str:
    """What a runtime's exception says first, without its full stop; its type if it is silent."""
    return _line(error, 0)


def last_line(error: BaseException) -> str:
    """What an exception says last: OpenVINO's begin with the places in its own sources."""
    return _line(error, -1)


def _line(error: BaseException, place: int) -> str:
    lines = str(error).strip().splitlines()
    return lines[place].rstrip(".") if lines else type(error).__name__
