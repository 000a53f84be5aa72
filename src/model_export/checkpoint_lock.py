"""The lock of hub checkpoints: `3rdparty/checkpoints.lock.json`, lock version 1.

`docs/hub.md` describes the format. Standard library and Python 3.9 only, because Pants and the
hub processes import this module.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from typing import Any, Dict, List, Mapping, NoReturn, Optional, Tuple, Union

from model_export.checkpoint_paths import UnsafePathError, check_path, check_paths, shown
from model_export.spec import ADAPTER_WEIGHTS

LOCK_FILE = "3rdparty/checkpoints.lock.json"
LOCK_VERSION = 1
DEFAULT_REVISION = "main"

PICKLE_SUFFIXES = (".bin", ".pt", ".pth", ".pt2", ".ckpt", ".pkl", ".pickle", ".joblib")
CODE_SUFFIXES = (".py", ".pyc", ".pyi", ".so", ".ipynb")

# As huggingface_hub's `validate_repo_id`: at most 96 characters, one slash, no `--`, no `..`.
_REPO = re.compile(r"[A-Za-z0-9][\w.\-]*(/[A-Za-z0-9_][\w.\-]*)?", re.ASCII)
_REPO_LENGTH = 96
# Names that git allows and an address bar, a file name and a BUILD file all take.
_REVISION = re.compile(r"[A-Za-z0-9_][\w.+\-]*(/[A-Za-z0-9_][\w.+\-]*)*", re.ASCII)
_REVISION_LENGTH = 255
_COMMIT = re.compile(r"[0-9a-f]{40}")
_SHA256 = re.compile(r"[0-9a-f]{64}")

# What a lock may hold at most: far more than any checkpoint has, far less than hurts to read.
MAX_LOCK_BYTES = 64 << 20
MAX_FILES = 10_000
MAX_FILE_BYTES = 1 << 44
MAX_PATTERNS = 100
_LICENSE_LENGTH = 200
_INTEGER_DIGITS = 20

_AGAIN = "Run ./pants lock-checkpoints"


class CheckpointLockError(ValueError):
    """A checkpoint lock that can't be used: where, what is wrong with it, and the remedy."""

    def __init__(self, where: str, problem: str, remedy: str = _AGAIN) -> None:
        super().__init__(f"{where}: {problem}. {remedy}.")
        self.where = where
        self.problem = problem
        self.remedy = remedy


@dataclass(frozen=True)
class LockedFile:
    """A file of a checkpoint: relative path with '/', size in bytes, sha256 in hex."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True)
class LockedCheckpoint:
    """A model id at one commit, and every file that an export of it needs, sorted by path.

    `revision` is what was asked for (branch, tag, commit, `refs/pr/N`), `commit` what it was then.
    `gated` is the hub's word: False, "auto" or "manual". `pickle` and `remote_code` say whether the
    targets allow pickled weights and trust the repository's own code; `include`, `exclude` and
    `gguf_file` how they chose files.
    """

    repo: str
    revision: str
    commit: str
    license: Optional[str]
    gated: Union[bool, str]
    pickle: bool
    remote_code: bool
    include: Tuple[str, ...]
    exclude: Tuple[str, ...]
    gguf_file: Optional[str]
    files: Tuple[LockedFile, ...]

    @property
    def key(self) -> str:
        """The name of this entry in the lock."""
        return lock_key(self.repo, self.revision)

    @property
    def is_adapter(self) -> bool:
        """Whether it is a LoRA adapter, which a model is merged with, and no model."""
        return any(file.path == ADAPTER_WEIGHTS for file in self.files)

    @property
    def size(self) -> int:
        """The bytes of all files."""
        return sum(file.size for file in self.files)


@dataclass(frozen=True)
class CheckpointLock:
    """All of the lock: `<id>@<revision>` -> checkpoint."""

    checkpoints: Mapping[str, LockedCheckpoint]

    def to_json(self) -> str:
        """JSON with sorted keys, indent 1 and a final newline; equal locks give equal text."""
        entries = {key: asdict(checkpoint) for key, checkpoint in self.checkpoints.items()}
        for entry in entries.values():
            entry["files"] = sorted(entry["files"], key=lambda file: str(file["path"]))
        document = {"lock_version": LOCK_VERSION, "checkpoints": entries}
        return json.dumps(document, indent=1, sort_keys=True, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: Union[str, bytes], where: str = LOCK_FILE) -> CheckpointLock:
        """Read a lock, trusting nothing of it.

        `where` names it in errors. Raises CheckpointLockError for anything but what `to_json`
        writes, its order and spacing apart.
        """
        document = _object(where, parse_json(text, where), ("lock_version", "checkpoints"))
        version = document["lock_version"]
        if type(version) is not int or version != LOCK_VERSION:
            raise CheckpointLockError(
                where,
                f"it has lock version {shown(version)}, and this reads {LOCK_VERSION}",
                "Use the model-export that wrote it, or remove it and run ./pants lock-checkpoints",
            )
        entries = document["checkpoints"]
        if not isinstance(entries, dict):
            raise CheckpointLockError(where, "`checkpoints` isn't an object")
        checkpoints = {key: _checkpoint(where, key, entry) for key, entry in entries.items()}
        return cls(dict(sorted(checkpoints.items())))


def lock_key(repo: str, revision: str) -> str:
    """The name of an entry: `Qwen/Qwen3-0.6B@main`."""
    return f"{repo}@{revision}"


def is_repo_id(text: str) -> bool:
    """Whether `text` has the form of a model id on the hub."""
    return bool(
        _REPO.fullmatch(text)
        and len(text) <= _REPO_LENGTH
        and "--" not in text
        and ".." not in text
        and not text.endswith((".", "-"))
    )


def is_revision(text: str) -> bool:
    """Whether `text` has the form of a branch, tag, commit or `refs/pr/N`."""
    return bool(
        _REVISION.fullmatch(text)
        and len(text) <= _REVISION_LENGTH
        and ".." not in text
        and not text.endswith((".", ".lock"))
    )


def is_commit(text: str) -> bool:
    """Whether `text` is the full name of a commit: 40 digits of hex, in lower case."""
    return bool(_COMMIT.fullmatch(text))


def is_pattern(text: str) -> bool:
    """Whether `text` may stand in `include` or `exclude`: a path, in which `*?[]` are wild."""
    try:
        check_path(text.replace("*", "x").replace("?", "x"))
    except UnsafePathError:
        return False
    return True


def needs_pickle(path: str) -> bool:
    """Whether the file may be a pickle, which can run code when it is read, by its name."""
    return path.lower().endswith(PICKLE_SUFFIXES)


def needs_remote_code(path: str) -> bool:
    """Whether the file is code, by its name."""
    return path.lower().endswith(CODE_SUFFIXES)


def parse_json(text: Union[str, bytes], where: str) -> Any:
    """What a JSON text holds.

    Raises CheckpointLockError if it is no JSON, too long or too deep, has a key twice, or a number
    that is no integer of at most 20 digits.
    """
    if len(text) > MAX_LOCK_BYTES:
        raise CheckpointLockError(where, f"it is longer than {MAX_LOCK_BYTES} bytes")

    def unique(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            keys = [key for key, _ in pairs]
            twice = next(key for key in keys if keys.count(key) > 1)
            raise CheckpointLockError(where, f"the key {shown(twice)} is there twice")
        return found

    def integer(digits: str) -> int:
        if len(digits) > _INTEGER_DIGITS:
            raise CheckpointLockError(where, f"the number {shown(digits)} is too large")
        return int(digits)

    def refuse(number: str) -> NoReturn:
        raise CheckpointLockError(where, f"the number {shown(number)} is no integer")

    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8")
        return json.loads(
            text,
            object_pairs_hook=unique,
            parse_int=integer,
            parse_float=refuse,
            parse_constant=refuse,
        )
    except UnicodeDecodeError as error:
        raise CheckpointLockError(where, "it isn't UTF-8 text") from error
    except json.JSONDecodeError as error:
        raise CheckpointLockError(
            where, f"it is no JSON ({error})", "Resolve a merge conflict in it, or restore it"
        ) from error
    except RecursionError as error:
        raise CheckpointLockError(where, "it is nested too deep") from error


_FIELDS = (
    "repo",
    "revision",
    "commit",
    "license",
    "gated",
    "pickle",
    "remote_code",
    "include",
    "exclude",
    "gguf_file",
    "files",
)


def _checkpoint(lock: str, key: str, entry: Any) -> LockedCheckpoint:
    where = f"{lock}: {shown(key)}"
    fields = _object(where, entry, _FIELDS)
    repo = _text(where, fields, "repo")
    revision = _text(where, fields, "revision")
    commit = _text(where, fields, "commit")
    if not is_repo_id(repo):
        raise _wrong(where, fields, "repo", "no model id")
    if not is_revision(revision):
        raise _wrong(where, fields, "revision", "no branch, tag or commit")
    if key != lock_key(repo, revision):
        raise CheckpointLockError(where, f"it is the entry of {lock_key(repo, revision)}")
    if not is_commit(commit):
        raise _wrong(where, fields, "commit", "no commit")
    gguf_file = fields["gguf_file"]
    if gguf_file is not None and not (isinstance(gguf_file, str) and gguf_file.endswith(".gguf")):
        raise _wrong(where, fields, "gguf_file", "no GGUF file")
    checkpoint = LockedCheckpoint(
        repo=repo,
        revision=revision,
        commit=commit,
        license=_license(where, fields),
        gated=_gated(where, fields),
        pickle=_flag(where, fields, "pickle"),
        remote_code=_flag(where, fields, "remote_code"),
        include=_patterns(where, fields, "include"),
        exclude=_patterns(where, fields, "exclude"),
        gguf_file=gguf_file,
        files=_files(where, fields["files"]),
    )
    for file in checkpoint.files:
        if needs_pickle(file.path) and not checkpoint.pickle:
            raise CheckpointLockError(
                where, f"{shown(file.path)} may be a pickle, which the entry doesn't allow"
            )
        if needs_remote_code(file.path) and not checkpoint.remote_code:
            raise CheckpointLockError(
                where, f"{shown(file.path)} is code, which the entry doesn't trust"
            )
    if gguf_file is not None and gguf_file not in {file.path for file in checkpoint.files}:
        raise _wrong(where, fields, "gguf_file", "none of its files")
    return checkpoint


def _files(where: str, items: Any) -> Tuple[LockedFile, ...]:
    if not isinstance(items, list) or not items:
        raise CheckpointLockError(where, "`files` isn't a list of files")
    if len(items) > MAX_FILES:
        raise CheckpointLockError(where, f"it has more than {MAX_FILES} files")
    files = []
    for number, item in enumerate(items):
        here = f"{where}: files[{number}]"
        fields = _object(here, item, ("path", "size", "sha256"))
        path, digest, size = (
            _text(here, fields, "path"),
            _text(here, fields, "sha256"),
            fields["size"],
        )
        if not _SHA256.fullmatch(digest):
            raise _wrong(here, fields, "sha256", "no sha256 in lower-case hex")
        if type(size) is not int or not 0 <= size <= MAX_FILE_BYTES:
            raise _wrong(here, fields, "size", "no size of a file")
        files.append(LockedFile(path, size, digest))
    try:
        check_paths(file.path for file in files)
    except UnsafePathError as error:
        raise CheckpointLockError(where, f"the path {error}") from error
    return tuple(sorted(files, key=lambda file: file.path))


def _object(where: str, value: Any, names: Tuple[str, ...]) -> Dict[str, Any]:
    if not isinstance(value, dict):
        raise CheckpointLockError(where, "it isn't an object")
    for name in names:
        if name not in value:
            raise CheckpointLockError(where, f"`{name}` is missing")
    for name in value:
        if name not in names:
            raise CheckpointLockError(where, f"it has an unknown key {shown(name)}")
    return value


def _wrong(where: str, fields: Mapping[str, Any], name: str, what: str) -> CheckpointLockError:
    return CheckpointLockError(where, f"`{name}` is {shown(fields[name])}, which is {what}")


def _text(where: str, fields: Mapping[str, Any], name: str) -> str:
    value = fields[name]
    if not isinstance(value, str):
        raise _wrong(where, fields, name, "no string")
    return value


def _flag(where: str, fields: Mapping[str, Any], name: str) -> bool:
    value = fields[name]
    if not isinstance(value, bool):
        raise _wrong(where, fields, name, "neither true nor false")
    return value


def _gated(where: str, fields: Mapping[str, Any]) -> Union[bool, str]:
    value = fields["gated"]
    if value is False or value in ("auto", "manual"):
        return value if isinstance(value, str) else False
    raise _wrong(where, fields, "gated", 'neither false, "auto" nor "manual"')


def _license(where: str, fields: Mapping[str, Any]) -> Optional[str]:
    value = fields["license"]
    if value is None:
        return None
    if not isinstance(value, str) or not value.isprintable() or len(value) > _LICENSE_LENGTH:
        raise _wrong(where, fields, "license", "no line of text")
    return value


def _patterns(where: str, fields: Mapping[str, Any], name: str) -> Tuple[str, ...]:
    value = fields[name]
    if not isinstance(value, list) or len(value) > MAX_PATTERNS:
        raise _wrong(where, fields, name, f"no list of at most {MAX_PATTERNS} patterns")
    for pattern in value:
        if not isinstance(pattern, str) or not is_pattern(pattern):
            raise CheckpointLockError(where, f"`{name}` has {shown(pattern)}, which is no pattern")
    if value != sorted(set(value)):
        raise CheckpointLockError(where, f"`{name}` isn't sorted, or has a pattern twice")
    return tuple(value)
