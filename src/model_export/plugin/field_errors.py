"""The error for a field whose value can't be exported, and the nearest known name."""

from __future__ import annotations

import difflib
from typing import Any, Iterable, Mapping


class SpecError(ValueError):
    """A field of a target has a value that can't be exported.

    `path` is the field, with the keys below it (`config['opset_version']`); `problem` and `remedy`
    are one sentence each, without the final full stop.
    """

    def __init__(self, path: str, problem: str, remedy: str) -> None:
        super().__init__(f"`{path}` {problem}. {remedy}.")
        self.path = path
        self.problem = problem
        self.remedy = remedy


def nearest(name: str, known: Iterable[str]) -> str:
    """`Did you mean 'x'?` for the closest known name, else the list of all."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if close:
        return f"Did you mean {close[0]!r}? Known: {', '.join(names)}"
    return "Known: " + ", ".join(names)


def require_mapping(path: str, value: object, what: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise SpecError(path, f"must be {what}, not {type(value).__name__}", "Write a dict")
    for key in value:
        if not isinstance(key, str):
            raise SpecError(path, f"has a key that is not a string: {key!r}", "Quote the key")
    return value
