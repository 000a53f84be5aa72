"""Finds paths of the build machine in an artifact: they'd differ on the next machine."""

from __future__ import annotations

import site
import sys
from collections.abc import Iterable
from pathlib import Path

from model_export.exporter.errors import ExportError

# Read, not mapped: mapped pages of a large file would count as this process's memory.
_CHUNK_BYTES = 1 << 20


def build_paths(*folders: Path) -> tuple[bytes, ...]:
    """The paths that must not be in an artifact: `folders`, the resolve's own, and its packages."""
    candidates = [*map(str, folders), sys.prefix, sys.base_prefix, *site.getsitepackages()]
    # A prefix such as /usr is in no artifact by accident only: too short to tell.
    return tuple(sorted({path.encode() for path in candidates if path.count("/") > 2}))


def check_no_leak(artifact: Path, needles: Iterable[bytes]) -> None:
    """Raise ExportError if a file of the artifact holds one of `needles`; reads 1 MiB at a time."""
    wanted = tuple(needles)
    for path in sorted(artifact.rglob("*")):
        if path.is_file() and (needle := _first_found(path, wanted)) is not None:
            raise ExportError(
                path.relative_to(artifact).as_posix(),
                f"would hold a path of this machine: {needle.decode()}",
                "This is a fault of model-export: a normalisation pass is missing",
            )


def _first_found(path: Path, needles: tuple[bytes, ...]) -> bytes | None:
    # What a needle needs of the chunk before, if it lies across two.
    overlap = max(map(len, needles), default=1) - 1
    kept = b""
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            window = kept + chunk
            for needle in needles:
                if needle in window:
                    return needle
            kept = window[-overlap:] if overlap else b""
    return None
