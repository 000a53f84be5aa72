"""The error for a field whose value can't be exported, and the nearest known name."""

from __future__ import annotations

import difflib
from typing import Any, Iterable, Mapping, Optional

_NO_ALIASES: Mapping[str, str] = {}


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


class TargetError(Exception):
    """A target that can't be built: its address, then the line of the field that is wrong."""

    def __init__(self, address: object, error: SpecError) -> None:
        super().__init__(f"{address}: {error}")


def closest(
    name: str, known: Iterable[str], aliases: Optional[Mapping[str, str]] = None
) -> Optional[str]:
    """The known name that `name` most likely stands for, if there is one.

    `aliases` maps names that other tools use to ours; case and `-` for `_` don't count.
    """
    names = {known_name.lower().replace("-", "_"): known_name for known_name in sorted(known)}
    plain = name.lower().replace("-", "_")
    alias = (aliases or _NO_ALIASES).get(plain)
    if alias in names.values():
        return alias
    close = difflib.get_close_matches(plain, list(names), n=1, cutoff=0.6)
    return names[close[0]] if close else None


def nearest(name: str, known: Iterable[str], aliases: Optional[Mapping[str, str]] = None) -> str:
    """`Did you mean 'x'? Known: ...`, or the list of all known names where none is close."""
    names = sorted(known)
    close = closest(name, names, aliases)
    listed = "Known: " + ", ".join(names) if names else "None is known"
    return f"Did you mean {close!r}? {listed}" if close else listed


def require_mapping(path: str, value: object, what: str) -> Mapping[str, Any]:
    """`value`, if it is a mapping with string keys; raises SpecError with `what` otherwise."""
    if not isinstance(value, Mapping):
        raise SpecError(path, f"must be {what}, not {type(value).__name__}", "Write a dict")
    for key in value:
        if not isinstance(key, str):
            raise SpecError(path, f"has a key that is not a string: {key!r}", "Quote the key")
    return value
