"""The checkpoint lock: its one form, and that nothing hostile gets through."""

from __future__ import annotations

import json
import random

import pytest

from hub.hostile_locks import EMPTY_SHA256, LOCK_KEY, LOCK_TEXT, hostile_locks
from model_export.checkpoint_lock import (
    CheckpointLock,
    CheckpointLockError,
    LockedCheckpoint,
    LockedFile,
    is_pattern,
    is_repo_id,
    is_revision,
)

CHECKPOINT = LockedCheckpoint(
    repo="Qwen/Qwen3-0.6B",
    revision="main",
    commit="c1899de289a04d12100db370d81485cdf75e47ca",
    license="apache-2.0",
    gated=False,
    pickle=False,
    remote_code=False,
    include=(),
    exclude=(),
    gguf_file=None,
    files=(
        LockedFile("config.json", 726, "1" * 64),
        LockedFile("sub/ünï code.json", 0, EMPTY_SHA256),
    ),
)


def test_has_one_form() -> None:
    lock = CheckpointLock({CHECKPOINT.key: CHECKPOINT})
    assert lock.to_json() == LOCK_TEXT
    assert CheckpointLock.from_json(LOCK_TEXT) == lock
    assert CheckpointLock.from_json(LOCK_TEXT.encode()) == lock


def test_order_and_spacing_do_not_count() -> None:
    document = json.loads(LOCK_TEXT)
    document["checkpoints"][LOCK_KEY]["files"].reverse()
    shuffled = json.dumps(document, ensure_ascii=False)
    assert CheckpointLock.from_json(shuffled).to_json() == LOCK_TEXT


def test_counts_bytes() -> None:
    assert CHECKPOINT.size == 726


HOSTILE_LOCKS = hostile_locks()


def test_there_are_enough_of_them() -> None:
    assert len(HOSTILE_LOCKS) >= 100
    CheckpointLock.from_json(LOCK_TEXT)


@pytest.mark.parametrize("content", HOSTILE_LOCKS.values(), ids=HOSTILE_LOCKS.keys())
def test_refuses(content: bytes) -> None:
    with pytest.raises(CheckpointLockError) as caught:
        CheckpointLock.from_json(content)
    _one_line(caught.value)


def test_refuses_text_of_any_length_at_once() -> None:
    with pytest.raises(CheckpointLockError, match="longer than"):
        CheckpointLock.from_json(b" " * ((64 << 20) + 1))


def test_any_change_of_a_character_is_read_or_refused() -> None:
    """Never another exception, and never a lock that can't be written again."""
    drawn = random.Random(4)
    for _ in range(2_000):
        position = drawn.randrange(len(LOCK_TEXT))
        text = LOCK_TEXT[:position] + drawn.choice('"{}[],:\\/0-x\n\0é') + LOCK_TEXT[position + 1 :]
        try:
            lock = CheckpointLock.from_json(text)
        except CheckpointLockError as error:
            _one_line(error)
        else:
            assert CheckpointLock.from_json(lock.to_json()) == lock


def test_allows_pickle_and_code_where_the_entry_does() -> None:
    document = json.loads(LOCK_TEXT)
    entry = document["checkpoints"][LOCK_KEY]
    entry["files"][0]["path"] = "pytorch_model.bin"
    entry["files"][1]["path"] = "modeling_own.py"
    entry["pickle"] = entry["remote_code"] = True
    lock = CheckpointLock.from_json(json.dumps(document))
    assert [file.path for file in lock.checkpoints[LOCK_KEY].files] == [
        "modeling_own.py",
        "pytorch_model.bin",
    ]


def test_knows_ids_revisions_and_patterns() -> None:
    assert all(map(is_repo_id, ("gpt2", "Qwen/Qwen3-0.6B", "a/_b")))
    assert not any(map(is_repo_id, ("a/b/c", "a--b/c", "../a", "a b", "-a", "a/b.", "", "é")))
    assert all(map(is_revision, ("main", "v1.0", "refs/pr/12", "c" * 40, "feat/a+b")))
    assert not any(map(is_revision, ("", "a..b", "/a", "a/", "a//b", "a.lock", "a@{1}", "-a")))
    assert all(map(is_pattern, ("*.json", "sub/*", "model-[0-9].safetensors", "a?c")))
    assert not any(map(is_pattern, ("", "../*", "/a", "a\\b", "a\0")))


def _one_line(error: CheckpointLockError) -> None:
    message = str(error)
    assert message.isprintable()
    assert message.isascii()
    assert len(message) < 500
    assert message.startswith("3rdparty/checkpoints.lock.json")
