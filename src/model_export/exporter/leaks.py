"""Finds paths of the build machine in an artifact: they'd differ on the next machine."""

from __future__ import annotations

import mmap
import site
import sys
from collections.abc import Iterable
from pathlib import Path

from model_export.exporter.errors import ExportError


def build_paths(*folders: Path) -> tuple[bytes, ...]:
    """The paths that must not be in an artifact: `folders`, the resolve's own, and its packages."""
    candidates = [*map(str, folders), sys.prefix, sys.base_prefix, *site.getsitepackages()]
    # A prefix such as /usr is in no artifact by accident only: too short to tell.
    return tuple(sorted({path.encode() for path in candidates if path.count("/") > 2}))


def check_no_leak(artifact: Path, needles: Iterable[bytes]) -> None:
    """Raise ExportError if a file of the artifact holds one of `needles`; files are only mapped."""
    for path in sorted(artifact.rglob("*")):
        if not path.is_file() or path.stat().st_size == 0:
            continue
        with path.open("rb") as file:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                for needle in needles:
                    if content.find(needle) >= 0:
                        raise ExportError(
                            path.relative_to(artifact).as_posix(),
                            f"would hold a path of this machine: {needle.decode()}",
                            "This is a fault of model-export: a normalisation pass is missing",
                        )
