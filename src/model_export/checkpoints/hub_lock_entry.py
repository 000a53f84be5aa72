"""Makes the lock's entry of one checkpoint: asks, chooses, hashes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

from model_export.checkpoint_ask import CheckpointAsk
from model_export.checkpoint_lock import (
    CheckpointLock,
    CheckpointLockError,
    LockedCheckpoint,
    LockedFile,
)
from model_export.checkpoint_paths import UnsafePathError, check_paths, shown
from model_export.checkpoints.hub_lock_client import HubClient, ListedFile
from model_export.checkpoints.hub_lock_errors import UnsuitableCheckpointError, wrong_answer
from model_export.checkpoints.hub_lock_selection import CONFIG_FILE, choose_files

_OTHER = "Choose another revision, or tell its owner"


def lock_checkpoint(ask: CheckpointAsk, client: HubClient) -> tuple[LockedCheckpoint, str | None]:
    """The entry that answers `ask`, and a note for people if there is anything to know.

    The revision is resolved once, and everything after that is asked of its commit, so a branch
    may move meanwhile. Raises HubLockError.
    """
    state = client.state(ask.key, ask.repo, ask.commit or ask.revision)
    contents: dict[str, bytes] = {}

    def read(path: str) -> bytes:
        if path not in contents:
            contents[path] = client.read(ask.key, ask.repo, state.commit, state.files[path])
        return contents[path]

    def read_object(path: str) -> Mapping[str, Any]:
        return _object(f"{ask.key}: {path}", read(path))

    chosen = choose_files(ask, state.files, read_object)
    try:
        check_paths(chosen)
    except UnsafePathError as error:
        raise UnsuitableCheckpointError(
            ask.key, f"the path {error}", "Leave it out with `exclude`, or tell its owner"
        ) from error
    note = _own_code(ask, read_object(CONFIG_FILE)) if CONFIG_FILE in chosen else None
    entry = LockedCheckpoint(
        repo=ask.repo,
        revision=ask.revision,
        commit=state.commit,
        license=state.license,
        gated=state.gated,
        pickle=ask.pickle,
        remote_code=ask.remote_code,
        include=ask.include,
        exclude=ask.exclude,
        gguf_file=ask.gguf_file,
        files=tuple(_locked(state.files[path], read) for path in chosen),
    )
    try:
        # What can't be read again must not be written.
        CheckpointLock.from_json(CheckpointLock({entry.key: entry}).to_json())
    except CheckpointLockError as error:
        raise wrong_answer(ask.key, f"its lock would be wrong: {error.problem}") from error
    return entry, note


def _locked(file: ListedFile, read: Callable[[str], bytes]) -> LockedFile:
    if file.sha256 is not None:
        return LockedFile(file.path, file.size, file.sha256)
    content = read(file.path)
    return LockedFile(file.path, len(content), hashlib.sha256(content).hexdigest())


def _object(where: str, content: bytes) -> Mapping[str, Any]:
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise UnsuitableCheckpointError(where, "it isn't JSON", _OTHER) from error
    if not isinstance(document, dict):
        raise UnsuitableCheckpointError(where, "it isn't a JSON object", _OTHER)
    return document


def _own_code(ask: CheckpointAsk, config: Mapping[str, Any]) -> str | None:
    """What to know of code that `auto_map` of the config names.

    Raises UnsuitableCheckpointError if it is trusted and isn't in this repository.
    """
    auto_map = config.get("auto_map")
    if not isinstance(auto_map, dict) or not auto_map:
        return None
    if not ask.remote_code:
        return (
            f"{ask.key}: has code of its own, which isn't locked. If its export needs that, and "
            "you trust it, set `trust_remote_code=True`."
        )
    for name, value in sorted(auto_map.items(), key=str):
        # transformers: `other/repository--module.Class`.
        if isinstance(value, str) and "--" in value:
            raise UnsuitableCheckpointError(
                ask.key,
                f"{CONFIG_FILE} takes {shown(name)} from another repository, {shown(value)}",
                "Copy checkpoint and code into one folder, and make that a `local_checkpoint`",
            )
    return None
