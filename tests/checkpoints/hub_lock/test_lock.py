"""Locking checkpoints of a hub on this machine, with an unmodified huggingface_hub."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest
from huggingface_hub import constants

from checkpoints.hub_lock.locking import ASK, CONFIG, FILES, TINY, TOKEN, WEIGHTS, Lock, refused
from hub.faults import (
    Before,
    Status,
)
from hub.repositories import Content, HubRepository
from hub.server import Hub
from model_export.checkpoints.hub_lock_client import HubClient
from model_export.checkpoints.hub_lock_entry import lock_checkpoint
from model_export.checkpoints.hub_lock_errors import (
    NoAccessError,
    NotOnHubError,
    UnreachableHubError,
    UnsuitableCheckpointError,
)


def test_locks_every_file_that_an_export_needs(hub: Hub, lock: Lock) -> None:
    locked = lock()
    repository = hub.repositories[TINY]
    assert locked.commit == repository.refs["refs/heads/main"]
    assert locked.license == "apache-2.0" and locked.gated is False
    assert {file.path: (file.size, file.sha256) for file in locked.files} == {
        name: (len(FILES[name]), hashlib.sha256(FILES[name]).hexdigest())
        for name in ("config.json", "model.safetensors", "tokenizer.json")
    }
    # Weights are believed, not downloaded; small files are downloaded at the commit.
    assert not [request for request in hub.requests if request.server == "cdn"]
    fetched = [request.path for request in hub.requests if "/resolve/" in request.path]
    assert fetched and all(f"/resolve/{locked.commit}/" in path for path in fetched)


def test_resolves_branches_tags_commits_and_pull_requests(hub: Hub, lock: Lock) -> None:
    repository = hub.repositories[TINY]
    first = repository.refs["refs/heads/main"]
    repository.refs["refs/tags/v1"] = first
    second = repository.commit({**FILES, "config.json": b'{"model_type": "llama"}'})
    third = repository.commit(FILES, "refs/pr/1")
    for revision, commit in {"main": second, "v1": first, first: first, "refs/pr/1": third}.items():
        locked = lock(revision=revision)
        assert (locked.revision, locked.commit) == (revision, commit)
    assert lock(commit=first).commit == first
    assert "no such revision" in refused(NotOnHubError, lock, revision="v2")


def test_a_branch_that_moves_meanwhile_changes_nothing(hub: Hub, lock: Lock) -> None:
    repository = hub.repositories[TINY]
    first = lock()
    hub.misbehave(Before(lambda: repository.commit({"config.json": b"{}"})), "*/resolve/*")
    assert lock() == first


def test_reads_licences_and_gating(hub: Hub, lock: Lock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    gated = lock(repo="acme/gated")
    assert (gated.license, gated.gated) == ("llama3", "manual")
    cards: dict[str | None, dict[str, object]] = {
        None: {},
        "mit, apache-2.0": {"license": ["mit", "apache-2.0"]},
        "qwen-research": {"license": "other", "license_name": "qwen-research"},
        "other": {"license": "other"},
        "a [31mb": {"license": "a\n\x1b[31mb"},
        "l" * 200: {"license": "l" * 1000},
    }
    for expected, card in cards.items():
        hub.add(HubRepository(TINY, FILES, card=card))
        assert lock().license == expected


def test_locks_shards(hub: Hub, lock: Lock) -> None:
    index = json.dumps({"metadata": {}, "weight_map": {"a": "model-1.safetensors"}}).encode()
    files = {"config.json": CONFIG, "model.safetensors.index.json": index}
    hub.add(HubRepository(TINY, {**files, "model-1.safetensors": WEIGHTS}))
    assert [file.path for file in lock().files] == [
        "config.json",
        "model-1.safetensors",
        "model.safetensors.index.json",
    ]
    hub.add(HubRepository(TINY, files))
    assert "doesn't have" in refused(UnsuitableCheckpointError, lock)


def test_an_index_in_lfs_comes_from_another_host_without_the_token(
    hub: Hub, lock: Lock, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = Content(json.dumps({"weight_map": {"a": "model-1.safetensors"}}).encode())
    repository = HubRepository("acme/gated", {"config.json": CONFIG}, gated="auto")
    files: dict[str, Any] = {"config.json": CONFIG, "model-1.safetensors": WEIGHTS}
    monkeypatch.setattr("hub.repositories.LFS_PATTERNS", ("*.safetensors", "*.index.json"))
    repository.commit({**files, "model.safetensors.index.json": index})
    hub.add(repository)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    locked = {file.path: file.sha256 for file in lock(repo="acme/gated").files}
    assert locked["model.safetensors.index.json"] == index.sha256
    carried = {request.server for request in hub.requests if request.token is not None}
    asked = {request.server for request in hub.requests}
    assert asked == {"hub", "cdn"} and carried == {"hub"}


def test_says_who_is_not_let_in(hub: Hub, lock: Lock, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "then log in (`hf auth login`)" in refused(NoAccessError, lock, repo="acme/gated")
    assert "set HF_TOKEN" in refused(NotOnHubError, lock, repo="acme/private")
    assert "no such model" in refused(NotOnHubError, lock, repo="acme/absent")
    monkeypatch.setenv("HF_TOKEN", "hf_other")
    assert "the account of your token" in refused(NoAccessError, lock, repo="acme/gated")
    assert "(404)" in refused(NotOnHubError, lock, repo="acme/private")
    monkeypatch.setenv("HF_TOKEN", "hf_revoked")
    assert "doesn't accept your token" in refused(NoAccessError, lock)
    monkeypatch.delenv("HF_TOKEN")
    hub.misbehave(Status(403), "/api/*")
    assert "forbidden to this account (403)" in refused(NoAccessError, lock)
    hub.misbehave(Status(404), "/api/*")
    assert "HF_ENDPOINT" in refused(NotOnHubError, lock)
    disabled = {"X-Error-Message": "Access to this resource is disabled."}
    hub.misbehave(Status(403, disabled), "/api/*")
    assert "has disabled it" in refused(NoAccessError, lock)


def test_says_where_a_repository_went(hub: Hub, lock: Lock) -> None:
    hub.rename(TINY, "acme/small")
    message = refused(NotOnHubError, lock)
    assert message == (
        "acme/tiny@main: its id is 'acme/small' now. Write that id in the BUILD file."
    )


def test_stays_away_when_told_to(lock: Lock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert "HF_HUB_OFFLINE is set" in refused(UnreachableHubError, lock)


def test_says_that_nobody_answers(lock: Lock, waits: list[float]) -> None:
    endpoint = "http://user:secret@127.0.0.1:1"
    message = refused(UnreachableHubError, lock, endpoint=endpoint)
    assert "127.0.0.1 can't be asked (ConnectError)" in message and "secret" not in message
    assert len(waits) == 4
    assert "HF_ENDPOINT" in refused(UnreachableHubError, lock, endpoint="ftp://127.0.0.1")


def test_knows_of_code(hub: Hub) -> None:
    own = {"auto_map": {"AutoModel": "modeling_own.OwnModel"}}
    files = {**FILES, "config.json": json.dumps(own).encode(), "modeling_own.py": b"import os\n"}
    hub.add(HubRepository(TINY, files))
    locked, note = lock_checkpoint(ASK, HubClient(hub.endpoint))
    assert "modeling_own.py" not in {file.path for file in locked.files}
    assert note is not None and "`trust_remote_code=True`" in note
    locked, note = lock_checkpoint(replace(ASK, remote_code=True), HubClient(hub.endpoint))
    assert "modeling_own.py" in {file.path for file in locked.files} and note is None
    own["auto_map"]["AutoModel"] = "other/code--modeling_own.OwnModel"
    hub.add(HubRepository(TINY, {**files, "config.json": json.dumps(own).encode()}))
    with pytest.raises(UnsuitableCheckpointError, match="from another repository"):
        lock_checkpoint(replace(ASK, remote_code=True), HubClient(hub.endpoint))
