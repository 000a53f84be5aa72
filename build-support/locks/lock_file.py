"""Reads the two files of a lock: what was asked for, and what was pinned."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Iterator

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

_HASH = re.compile(r"--hash=(?P<hash>\S+)")
_SHA256 = re.compile(r"sha256:[0-9a-f]{64}")
_HEADER = re.compile(r"^# sha256 of requirements\.in: (?P<digest>[0-9a-f]{64})$", re.MULTILINE)


class LockFileError(ValueError):
    """A line that is no requirement, or no pin."""


@dataclass(frozen=True)
class Pin:
    """One entry of a lock. A package has several where markers choose between versions."""

    name: str
    version: Version
    marker: str
    hashes: tuple[str, ...]

    @property
    def hashed(self) -> bool:
        """Whether pip would refuse any other file."""
        return bool(self.hashes) and all(_SHA256.fullmatch(value) for value in self.hashes)


def header(requirements_in: str) -> str:
    """The comment at the top of a lock that ties it to the `requirements.in` it came from."""
    return (
        "# Compiled from requirements.in by `./pants run 3rdparty:compile_locks`; don't edit.\n"
        f"# sha256 of requirements.in: {digest(requirements_in)}\n"
    )


def digest(requirements_in: str) -> str:
    """The sha256 of what a `requirements.in` asks for, without comments, blank lines and order."""
    lines = sorted(line for _, line in _logical_lines(requirements_in))
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def recorded_digest(lock: str) -> str | None:
    """The digest in a lock's header."""
    match = _HEADER.search(lock)
    return match["digest"] if match else None


def parse_requirements(text: str) -> tuple[Requirement, ...]:
    """What a `requirements.in` asks for. Raises LockFileError."""
    return tuple(_requirement(number, line) for number, line in _logical_lines(text))


def parse_lock(text: str) -> tuple[Pin, ...]:
    """The entries of a lock, in its order. Raises LockFileError for one not pinned by `==`."""
    pins = []
    for number, line in _logical_lines(text):
        requirement = _requirement(number, _HASH.sub("", line).strip())
        operators = [specifier.operator for specifier in requirement.specifier]
        if operators != ["=="] or requirement.url:
            raise LockFileError(f"line {number} is no pin: {requirement}")
        pins.append(
            Pin(
                name=canonicalize_name(requirement.name),
                version=Version(next(iter(requirement.specifier)).version),
                marker=str(requirement.marker or ""),
                hashes=tuple(match["hash"] for match in _HASH.finditer(line)),
            )
        )
    return tuple(pins)


def _requirement(number: int, line: str) -> Requirement:
    try:
        return Requirement(line)
    except InvalidRequirement as error:
        raise LockFileError(f"line {number} is no requirement: {line}") from error


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines joined at a final backslash, without comments: number of the last, and text."""
    joined = ""
    for number, line in enumerate(text.splitlines(), start=1):
        content = re.sub(r"(^|\s)#.*$", "", line).strip()
        joined = " ".join((joined, content.removesuffix("\\").strip())).strip()
        if content.endswith("\\"):
            continue
        if joined:
            yield number, joined
        joined = ""
    if joined:
        yield number, joined
