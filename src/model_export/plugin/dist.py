"""Puts artifacts into `dist/`: all of one or nothing, and nothing where it is there already.

A stamp in `dist/.model_export/stamps/` says which artifact a folder holds, and size, times and
inode of each file as they were when it was written. Comparing those costs the same for a model of
any size. A folder that differs is written anew beside the old one, on the same file system, and
renamed into its place: whoever looks sees the old artifact, none for an instant, or the new one.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, Iterator, List, Optional

from pants.core.goals.package import BuiltPackageArtifact
from pants.engine.fs import EMPTY_DIGEST, Digest

STATE_FOLDER = ".model_export"


class DistCollision(Exception):
    """Two packages that would be written into, or around, the same folder of `dist/`."""

    def __init__(self, relpath: str, other: str) -> None:
        super().__init__(
            f"The packages at {relpath} and {other} would overwrite each other in the dist folder. "
            "Give one of the targets another `output_path`."
        )


@dataclass(frozen=True)
class ModelArtifact(BuiltPackageArtifact):
    """A built artifact that is a folder: `digest` holds its files below `relpath`."""

    digest: Digest = EMPTY_DIGEST


@dataclass(frozen=True)
class Staging:
    """The two folders of one writer: `new` is written into, `old` takes what is replaced."""

    folder: Path

    @property
    def new(self) -> Path:
        return self.folder / "new"

    @property
    def old(self) -> Path:
        return self.folder / "old"


@contextlib.contextmanager
def staging(dist: Path) -> Iterator[Staging]:
    """The staging folder inside `dist`, empty; only one process has it, others wait.

    What a killed process left there is removed. The lock ends with the process that holds it.
    """
    state = dist / STATE_FOLDER
    state.mkdir(parents=True, exist_ok=True)
    with (state / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder = state / "staging"
        shutil.rmtree(folder, ignore_errors=True)
        try:
            yield Staging(folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def is_current(dist: Path, artifact: ModelArtifact) -> bool:
    """Whether `dist` holds exactly this artifact, untouched since it was written there."""
    try:
        stamp = json.loads(_stamp_path(dist, artifact).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return bool(stamp == _stamp(dist, artifact))


def install(dist: Path, artifact: ModelArtifact, stage: Staging) -> None:
    """Move the artifact from `stage.new` to its place in `dist`, and stamp it."""
    assert artifact.relpath is not None
    place = dist / artifact.relpath
    stamp = _stamp_path(dist, artifact)
    stamp.unlink(missing_ok=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    if os.path.lexists(place):
        replaced = stage.old / artifact.relpath
        replaced.parent.mkdir(parents=True, exist_ok=True)
        os.rename(place, replaced)
    os.rename(stage.new / artifact.relpath, place)
    # Written last, and whole: a stamp is never newer than what it describes.
    stamp.parent.mkdir(parents=True, exist_ok=True)
    draft = stage.folder / "stamp.json"
    draft.write_text(json.dumps(_stamp(dist, artifact)), encoding="utf-8")
    os.replace(draft, stamp)


def check_apart(models: List[str], others: List[str]) -> None:
    """Raise DistCollision if a model's folder is, holds or is inside another package's output."""
    paths = [*models, *others]
    for index, model in enumerate(models):
        for other in paths[index + 1 :]:
            shorter, longer = sorted((model.rstrip("/"), other.rstrip("/")), key=len)
            if shorter == longer or longer.startswith(f"{shorter}/"):
                raise DistCollision(model, other)


def _stamp_path(dist: Path, artifact: ModelArtifact) -> Path:
    assert artifact.relpath is not None
    return dist / STATE_FOLDER / "stamps" / f"{artifact.relpath}.json"


def _stamp(dist: Path, artifact: ModelArtifact) -> Dict[str, object]:
    assert artifact.relpath is not None
    return {
        "digest": artifact.digest.fingerprint,
        "files": _file_states(dist / artifact.relpath),
    }


def _file_states(folder: Path) -> Optional[Dict[str, List[int]]]:
    """Relative path -> size, mtime_ns, ctime_ns, inode, mode; None if there is no such folder."""
    if folder.is_symlink() or not folder.is_dir():
        return None
    states = {}
    for path in sorted(folder.rglob("*")):
        state = path.lstat()
        if path.is_dir() and not path.is_symlink():
            continue
        states[path.relative_to(folder).as_posix()] = [
            state.st_size,
            state.st_mtime_ns,
            state.st_ctime_ns,
            state.st_ino,
            state.st_mode,
        ]
    return states
