"""Says which lock no longer belongs to its `requirements.in`. Needs no network."""

from __future__ import annotations

from pathlib import Path
from typing import Iterable, Iterator

from packaging.utils import canonicalize_name
from packaging.version import Version

from locks.lock_file import (
    LockFileError,
    digest,
    parse_lock,
    parse_requirements,
    recorded_digest,
)
from locks.resolves import LockedResolve


def problems(root: Path, resolves: Iterable[LockedResolve]) -> tuple[str, ...]:
    """A line for each thing wrong with these locks, each with its remedy; empty if none."""
    resolves = tuple(resolves)
    found = [line for resolve in resolves for line in _problems_of(root, resolve)]
    if not found:
        found.extend(_unequal_pins(root, [each for each in resolves if each.shared_pins]))
    return tuple(found)


def _problems_of(root: Path, resolve: LockedResolve) -> Iterator[str]:
    path = f"3rdparty/{resolve.name}"
    remedy = f"run `./pants run 3rdparty:compile_locks -- {resolve.name}`"
    try:
        asked = resolve.requirements(root).read_text()
        lock = resolve.lock(root).read_text()
    except FileNotFoundError as error:
        yield f"{path}: {Path(error.filename).name} is missing: {remedy}"
        return
    if "://" in lock:
        yield f"{path}/lock.txt names a host or a file, which only this machine may have: {remedy}"
        return
    if recorded_digest(lock) != digest(asked):
        yield f"{path}/lock.txt was compiled from another requirements.in: {remedy}"
        return
    try:
        requirements, pins = parse_requirements(asked), parse_lock(lock)
    except LockFileError as error:
        yield f"{path}: {error}: {remedy}"
        return
    for requirement in requirements:
        name = canonicalize_name(requirement.name)
        versions = [pin.version for pin in pins if pin.name == name]
        if not any(requirement.specifier.contains(each, prereleases=True) for each in versions):
            has = " and ".join(map(str, versions)) or "nothing"
            yield f"{path}/lock.txt has {has} for `{requirement}`: {remedy}"
    for pin in pins:
        if not pin.hashed:
            yield f"{path}/lock.txt has no sha256 for {pin.name}=={pin.version}: {remedy}"


def _unequal_pins(root: Path, resolves: Iterable[LockedResolve]) -> Iterator[str]:
    """Packages that two resolves pin at different versions, whatever their markers."""
    first: dict[str, tuple[str, frozenset[Version]]] = {}
    for resolve in resolves:
        pins = parse_lock(resolve.lock(root).read_text())
        for name in sorted({pin.name for pin in pins}):
            versions = frozenset(pin.version for pin in pins if pin.name == name)
            other, expected = first.setdefault(name, (resolve.name, versions))
            if versions != expected:
                yield (
                    f"3rdparty/{other} and 3rdparty/{resolve.name} pin {name} differently, so it "
                    "is fetched and kept twice: run `./pants run 3rdparty:compile_locks`"
                )
