"""Files on their way into a fetch's output: the user's own hub cache, and partial downloads.

What leaves this module has the sha256 that was asked for. A file is moved into the output, or
linked there, where file systems allow: a checkpoint of 3 GB isn't written twice.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from model_export.checkpoints.hub_fetch_request import Content

_CHUNK_BYTES = 1 << 20


def cached_files(cache: Path, repo: str, commit: str, path: str, sha256: str) -> Iterator[Path]:
    """Where huggingface_hub's cache may have a file; links resolved, best place first.

    As `huggingface_hub/file_download.py` lays it out: `blobs/` has large files by their sha256,
    `snapshots/<commit>/` all files of a commit by name.
    """
    folder = cache / f"models--{repo.replace('/', '--')}"
    for candidate in (folder / "blobs" / sha256, folder / "snapshots" / commit / path):
        with contextlib.suppress(OSError, RuntimeError):  # RuntimeError: a loop of links.
            yield candidate.resolve(strict=True)


def adopt(source: Path, content: Content, target: Path) -> bool:
    """Link or copy `source` to `target` if it has this content; False if not, or it can't be read.

    `target` is there only if it is right. Never a symbolic link.
    """
    making = target.with_name(f".{target.name}.making")
    try:
        status = source.stat()
        if not stat.S_ISREG(status.st_mode) or status.st_size != content.size:
            return False
        making.unlink(missing_ok=True)
        try:
            os.link(source, making)
        except OSError:  # Another file system, or a file of another user.
            shutil.copyfile(source, making)
        if sha256_of(making) != content.sha256:
            return False
        making.replace(target)
        return True
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise
        return False
    finally:
        making.unlink(missing_ok=True)


def sha256_of(path: Path) -> str:
    """The sha256 of a file in hex, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Partial:
    """A file that grows to its content, and what is hashed of it so far."""

    def __init__(self, file: IO[bytes], path: Path) -> None:
        self._file = file
        self._path = path
        self._hash = hashlib.sha256()
        self.size = 0

    def load(self, limit: int) -> None:
        """Hash what an earlier fetch left; more than `limit` bytes of it are worth nothing."""
        self._file.seek(0)
        if os.fstat(self._file.fileno()).st_size > limit:
            self._file.truncate(0)
        while chunk := self._file.read(_CHUNK_BYTES):
            self._hash.update(chunk)
            self.size += len(chunk)

    def write(self, chunk: bytes) -> None:
        """Append `chunk`."""
        self._file.write(chunk)
        self._hash.update(chunk)
        self.size += len(chunk)

    def restart(self) -> None:
        """Drop all of it."""
        self._file.seek(0)
        self._file.truncate(0)
        self._hash = hashlib.sha256()
        self.size = 0

    @property
    def sha256(self) -> str:
        """The sha256 of what is there, in hex."""
        return self._hash.hexdigest()

    def drop(self) -> None:
        """Remove the file: what is in it is wrong."""
        self._path.unlink(missing_ok=True)

    def move_to(self, target: Path) -> None:
        """Make the file `target`, all of it or nothing."""
        self._file.flush()
        try:
            self._path.replace(target)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            making = target.with_name(f".{target.name}.making")
            shutil.copyfile(self._path, making)
            making.replace(target)
            self._path.unlink(missing_ok=True)


@contextlib.contextmanager
def open_partial(folder: Path | None, private: Path, content: Content) -> Iterator[Partial]:
    """The partial download of a content: in `folder`, where the next fetch finds it.

    In `private` instead if there is no `folder`, or another process is writing that file.
    """
    file = _claim(folder / content.sha256) if folder is not None else None
    path = private / f"{content.sha256}.partial"
    if file is not None and folder is not None:
        path = folder / content.sha256
    else:
        private.mkdir(parents=True, exist_ok=True)
        file = path.open("w+b")
    with file:
        partial = Partial(file, path)
        partial.load(content.size)
        try:
            yield partial
        finally:
            if not partial.size:
                partial.drop()


def _claim(path: Path) -> IO[bytes] | None:
    """Open a partial file for this process alone; None if another one has it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    file = os.fdopen(descriptor, "r+b")
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Whoever had the lock may have finished, and this file is their output by now.
        ours = os.path.samestat(os.fstat(descriptor), path.lstat())
    except (BlockingIOError, FileNotFoundError):
        ours = False
    if not ours:
        file.close()
        return None
    return file
