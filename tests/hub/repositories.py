"""Model repositories for the test hub: files, commits and refs, held in memory or on disk.

Python 3.9, because the plugin's tests run the hub too.
"""

from __future__ import annotations

import fnmatch
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Union

CHUNK_BYTES = 1 << 20
# What a repository of models has in its .gitattributes.
LFS_PATTERNS = ("*.safetensors", "*.bin", "*.gguf", "*.pt", "*.pth", "*.onnx", "*.h5", "*.msgpack")


@dataclass(frozen=True)
class Content:
    """The bytes of a file: `data`, a file on disk, or `zeros` bytes 0 that lie nowhere."""

    data: bytes = b""
    path: Path | None = None
    zeros: int = 0

    @cached_property
    def size(self) -> int:
        """Bytes."""
        return self.path.stat().st_size if self.path else len(self.data) + self.zeros

    @cached_property
    def sha256(self) -> str:
        """In hex."""
        digest = hashlib.sha256()
        for chunk in self.chunks(0, self.size):
            digest.update(chunk)
        return digest.hexdigest()

    def chunks(self, start: int, stop: int) -> Iterator[bytes]:
        """The bytes from `start` to `stop`, at most 1 MiB at a time."""
        if self.path is not None:
            with self.path.open("rb") as file:
                file.seek(start)
                while start < stop and (chunk := file.read(min(CHUNK_BYTES, stop - start))):
                    start += len(chunk)
                    yield chunk
            return
        while start < stop:
            end = min(start + CHUNK_BYTES, stop)
            yield self.data[start:end].ljust(end - start, b"\0")
            start = end


@dataclass(frozen=True)
class HubFile:
    """A file of a commit: `lfs` files lie on the CDN, the others in git."""

    content: Content
    lfs: bool

    @cached_property
    def pointer(self) -> bytes:
        """What git has in place of an LFS file."""
        return (
            "version https://git-lfs.github.com/spec/v1\n"
            f"oid sha256:{self.content.sha256}\nsize {self.content.size}\n"
        ).encode()

    @cached_property
    def oid(self) -> str:
        """The name of git's blob."""
        data = self.pointer if self.lfs else b"".join(self.content.chunks(0, self.content.size))
        return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


Files = Mapping[str, Union[bytes, Path, Content, HubFile]]


@dataclass
class HubRepository:
    """A model repository. `card` is what the front matter of its README says.

    `refs` maps full names (`refs/heads/main`, `refs/tags/v1`, `refs/pr/1`) to commits. A gated
    repository shows its metadata to everyone and its files to those who were let in, a private one
    shows neither to others.
    """

    id: str
    files: Files
    card: Mapping[str, object] = field(default_factory=lambda: {"license": "apache-2.0"})
    gated: bool | str = False
    private: bool = False
    refs: dict[str, str] = field(default_factory=dict)
    commits: dict[str, dict[str, HubFile]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.commit(self.files)

    @classmethod
    def from_folder(cls, repo_id: str, folder: Path) -> HubRepository:
        """A repository with the files below `folder`, which stay there."""
        files = {
            path.relative_to(folder).as_posix(): path
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }
        return cls(repo_id, files)

    def commit(self, files: Files, ref: str = "refs/heads/main") -> str:
        """Make a commit with exactly these files and let `ref` point at it; returns its name."""
        made = {path: _hub_file(path, content) for path, content in files.items()}
        digest = hashlib.sha1(f"{self.id} {len(self.commits)}".encode(), usedforsecurity=False)
        for path, file in made.items():
            digest.update(f"{path}\0{file.lfs}\0{file.content.size}\n".encode(errors="replace"))
        name = digest.hexdigest()
        self.commits[name] = made
        self.refs[ref] = name
        return name

    def resolve(self, revision: str) -> str | None:
        """The commit of a branch, tag, commit or ref."""
        if revision in self.commits:
            return revision
        for name in (revision, f"refs/heads/{revision}", f"refs/tags/{revision}"):
            if name in self.refs:
                return self.refs[name]
        return None


def _hub_file(path: str, content: bytes | Path | Content | HubFile) -> HubFile:
    if isinstance(content, HubFile):
        return content
    if isinstance(content, bytes):
        content = Content(content)
    elif isinstance(content, Path):
        content = Content(path=content)
    return HubFile(content, any(fnmatch.fnmatch(path, pattern) for pattern in LFS_PATTERNS))
