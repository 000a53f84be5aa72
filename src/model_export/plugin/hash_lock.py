"""Reads a hash-locked requirements file, as `uv pip compile --generate-hashes` writes it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Iterator, List, Tuple

from model_export.plugin.field_errors import SpecError, nearest

_HASH = re.compile(r"\s--hash=(?P<hash>[a-z0-9]+:[0-9a-f]+)(?=\s|$)")
_NAME = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)\s*(\[[^\]]*\])?\s*(?P<rest>.*)", re.DOTALL
)
_VERSION = re.compile(r"===?\s*(?P<version>[^\s;,]+)")
# What pip reads from elsewhere, unseen by the file's own sha256.
_OPTIONS_REFUSED = ("-r", "--requirement", "-c", "--constraint", "-e", "--editable")


class LockError(ValueError):
    """A lock that doesn't pin every byte: which file, which line, and what to do."""

    def __init__(self, path: str, line: int, problem: str) -> None:
        self.problem = f"{path}:{line} {problem}"
        self.remedy = (
            "Compile the lock with hashes: "
            "`uv pip compile --universal --generate-hashes requirements.in -o lock.txt`"
        )
        super().__init__(f"{self.problem}. {self.remedy}.")


@dataclass(frozen=True)
class LockedRequirement:
    """One entry of the lock: `requirement` with its marker, without its hashes."""

    name: str
    requirement: str
    hashes: Tuple[str, ...]
    line: int

    @property
    def version(self) -> str:
        """The pinned version; empty for a URL."""
        match = _VERSION.search(self.requirement)
        return match["version"] if match else ""

    def text(self) -> str:
        """The entry as a requirements file of its own."""
        return " ".join((self.requirement, *(f"--hash={digest}" for digest in self.hashes))) + "\n"


def normalized(name: str) -> str:
    """A distribution's name as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def parse_hash_lock(path: str, text: str) -> Tuple[LockedRequirement, ...]:
    """Every requirement of a lock, in its order.

    Raises LockError for an entry without a hash, an editable or included file, and a line that is
    no requirement; `path` is for its message. Other options (`--index-url`) are left to pip.
    """
    entries = []
    for line, entry in _logical_lines(text):
        if entry.startswith("-"):
            option = re.split(r"[\s=]", entry, maxsplit=1)[0]
            if option in _OPTIONS_REFUSED or entry[:2] in ("-r", "-c", "-e"):
                raise LockError(path, line, f"has `{entry}`, which no hash in this file pins")
            continue
        hashes = tuple(match["hash"] for match in _HASH.finditer(entry))
        requirement = _HASH.sub("", entry).strip()
        match = _NAME.fullmatch(requirement)
        if match is None or (match["rest"] and match["rest"][0] not in "=<>!~@;("):
            raise LockError(path, line, f"is no requirement: `{requirement}`")
        if not hashes:
            raise LockError(path, line, f"has no hash: `{requirement}`")
        entries.append(LockedRequirement(normalized(match["name"]), requirement, hashes, line))
    if not entries:
        raise LockError(path, 1, "locks nothing")
    return tuple(entries)


def find_locked(
    entries: Tuple[LockedRequirement, ...], package: str, resolve: str
) -> Tuple[LockedRequirement, ...]:
    """The entries of one package: more than one where markers choose between versions.

    Raises SpecError with the nearest locked name if there is none.
    """
    found = tuple(entry for entry in entries if entry.name == normalized(package))
    if not found:
        raise SpecError(
            "package",
            f"{package!r} isn't locked in the resolve {resolve!r}",
            nearest(package, {entry.name for entry in entries}),
        )
    return found


def _logical_lines(text: str) -> Iterator[Tuple[int, str]]:
    """Lines joined at a final backslash, without comments: number of the first, and text."""
    start = 0
    parts: List[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        content = re.sub(r"(^|\s)#.*$", "", line).rstrip()
        start = start if parts else number
        parts.append(content[:-1] if content.endswith("\\") else content)
        if content.endswith("\\"):
            continue
        joined = " ".join(part.strip() for part in parts).strip()
        if joined:
            yield start, joined
        parts = []
    joined = " ".join(part.strip() for part in parts).strip()
    if joined:
        yield start, joined
