"""Locking checkpoints of a hub on this machine, with an unmodified huggingface_hub."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants

from hub.faults import (
    Before,
    Corrupt,
    Cut,
    Fault,
    Json,
    RedirectLoop,
    Slow,
    Stall,
    Status,
    WrongSize,
)
from hub.hostile_locks import HOSTILE_PATHS
from hub.repositories import Content, HubRepository
from hub.server import Hub
from hub.trickling import trickling_headers
from model_export.checkpoint_ask import CheckpointAsk, LockRequest
from model_export.checkpoint_lock import CheckpointLock, LockedCheckpoint
from model_export.checkpoints import hub_lock_bounds, hub_lock_client
from model_export.checkpoints.hub_fetch_channel import FetchOrder, Listener
from model_export.checkpoints.hub_lock import LOCK_NAME, NOTES_NAME
from model_export.checkpoints.hub_lock_client import HubClient
from model_export.checkpoints.hub_lock_entry import lock_checkpoint
from model_export.checkpoints.hub_lock_errors import (
    HubLockError,
    NoAccessError,
    NotOnHubError,
    UnreachableHubError,
    UnsuitableCheckpointError,
    WrongAnswerError,
)

CONFIG = b'{"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"]}\n'
WEIGHTS = bytes(range(256)) * 1000
FILES = {
    "README.md": b"# Tiny\n",
    "config.json": CONFIG,
    "tokenizer.json": b"{}",
    "model.safetensors": WEIGHTS,
    "pytorch_model.bin": b"pickle",
}
TINY = "acme/tiny"
ASK = CheckpointAsk(TINY)
TOKEN = "hf_secretOfTheTest"


@pytest.fixture
def hub() -> Iterator[Hub]:
    repositories = [
        HubRepository(TINY, FILES),
        HubRepository("acme/gated", FILES, gated="manual", card={"license": "llama3"}),
        HubRepository("acme/private", FILES, private=True),
    ]
    with Hub(repositories, tokens={TOKEN: ["acme/gated", "acme/private"], "hf_other": []}) as made:
        yield made


@pytest.fixture
def waits() -> list[float]:
    """How long the client waited, each time."""
    return []


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr(hub_lock_client, "STEP_SECONDS", 0.3)


Lock = Callable[..., LockedCheckpoint]


@pytest.fixture
def lock(hub: Hub, waits: list[float]) -> Lock:
    def lock_it(endpoint: str = hub.endpoint, **changes: Any) -> LockedCheckpoint:
        return lock_checkpoint(replace(ASK, **changes), HubClient(endpoint, waits.append))[0]

    return lock_it


def _refused(kind: type[HubLockError], lock: Lock, **changes: Any) -> str:
    with pytest.raises(kind) as caught:
        lock(**changes)
    message = str(caught.value)
    assert message.isprintable() and len(message) < 500
    assert TOKEN not in message and "signature" not in message
    return message


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
    assert "no such revision" in _refused(NotOnHubError, lock, revision="v2")


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
    assert "doesn't have" in _refused(UnsuitableCheckpointError, lock)


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
    assert "then log in (`hf auth login`)" in _refused(NoAccessError, lock, repo="acme/gated")
    assert "set HF_TOKEN" in _refused(NotOnHubError, lock, repo="acme/private")
    assert "no such model" in _refused(NotOnHubError, lock, repo="acme/absent")
    monkeypatch.setenv("HF_TOKEN", "hf_other")
    assert "the account of your token" in _refused(NoAccessError, lock, repo="acme/gated")
    assert "(404)" in _refused(NotOnHubError, lock, repo="acme/private")
    monkeypatch.setenv("HF_TOKEN", "hf_revoked")
    assert "doesn't accept your token" in _refused(NoAccessError, lock)
    monkeypatch.delenv("HF_TOKEN")
    hub.misbehave(Status(403), "/api/*")
    assert "forbidden to this account (403)" in _refused(NoAccessError, lock)
    hub.misbehave(Status(404), "/api/*")
    assert "HF_ENDPOINT" in _refused(NotOnHubError, lock)
    disabled = {"X-Error-Message": "Access to this resource is disabled."}
    hub.misbehave(Status(403, disabled), "/api/*")
    assert "has disabled it" in _refused(NoAccessError, lock)


def test_says_where_a_repository_went(hub: Hub, lock: Lock) -> None:
    hub.rename(TINY, "acme/small")
    message = _refused(NotOnHubError, lock)
    assert message == (
        "acme/tiny@main: its id is 'acme/small' now. Write that id in the BUILD file."
    )


def test_stays_away_when_told_to(lock: Lock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert "HF_HUB_OFFLINE is set" in _refused(UnreachableHubError, lock)


def test_says_that_nobody_answers(lock: Lock, waits: list[float]) -> None:
    endpoint = "http://user:secret@127.0.0.1:1"
    message = _refused(UnreachableHubError, lock, endpoint=endpoint)
    assert "127.0.0.1 can't be asked (ConnectError)" in message and "secret" not in message
    assert len(waits) == 4
    assert "HF_ENDPOINT" in _refused(UnreachableHubError, lock, endpoint="ftp://127.0.0.1")


@pytest.mark.parametrize(
    "fault",
    [Status(500), Status(503), Cut(), Cut(after=10), Stall(), Stall(after=10)],
    ids=repr,
)
def test_gets_over_what_passes(hub: Hub, lock: Lock, waits: list[float], fault: Fault) -> None:
    expected = lock()
    for path in ("/api/*", "*/resolve/*config.json", "*/resolve-cache/*config.json"):
        hub.misbehave(fault, path)
        assert lock() == expected
    # A redirect has no body that could break off.
    assert len(waits) == (2 if getattr(fault, "after", -1) > 0 else 3)


def test_waits_as_long_as_the_hub_says(hub: Hub, lock: Lock, waits: list[float]) -> None:
    hub.misbehave(Status(429, {"Retry-After": "17"}))
    hub.misbehave(Status(429, {"Retry-After": "86400"}))
    hub.misbehave(Status(429, {"Retry-After": "later"}))
    lock()
    assert waits[:2] == [17.0, 60.0] and 0 < waits[2] <= 4
    hub.misbehave(Status(429), times=5)
    assert "limits the rate" in _refused(UnreachableHubError, lock)


@pytest.mark.parametrize(
    ("fault", "path"),
    [
        (RedirectLoop(), "/api/*"),
        (RedirectLoop(), "*/resolve/*"),
        (Corrupt(), "*/resolve-cache/*config.json"),
        (Status(200, {}, b"<html>"), "/api/*"),
        (Status(200, {}, b"[]"), "/api/*"),
        (Status(200, {}, b"null"), "/api/*"),
        (Status(200, {}, b"{}"), "/api/*"),
        (Status(200, {}, b"[" * 100_000), "/api/*"),
        (Status(200, {}, b"other bytes"), "*/resolve-cache/*config.json"),
        (Status(200, {}, CONFIG + b" "), "*/resolve-cache/*config.json"),
        (Status(302, {}), "/api/*"),
        (Status(302, {"Location": "file:///etc/passwd"}), "/api/*"),
        (Status(302, {"Location": "http://[::1"}), "/api/*"),
    ],
    ids=repr,
)
def test_believes_no_lie(hub: Hub, lock: Lock, fault: Fault, path: str) -> None:
    hub.misbehave(fault, path, times=100)
    with pytest.raises((WrongAnswerError, UnreachableHubError)) as caught:
        lock()
    assert str(caught.value).isprintable() and len(str(caught.value)) < 500


def test_a_wrong_length_is_no_answer(hub: Hub, lock: Lock) -> None:
    hub.misbehave(WrongSize(+1), "*/resolve-cache/*config.json", times=100)
    _refused(UnreachableHubError, lock)
    hub.behave()
    hub.misbehave(WrongSize(-1), "*/resolve-cache/*config.json", times=100)
    with pytest.raises((WrongAnswerError, UnreachableHubError)):
        lock()


def test_an_answer_has_an_end(hub: Hub, lock: Lock, monkeypatch: pytest.MonkeyPatch) -> None:
    bounds = hub_lock_bounds.bound_answers
    monkeypatch.setattr(hub_lock_client, "bound_answers", lambda: bounds(seconds=0.5))
    hub.misbehave(Slow(bytes_per_second=200), "/api/*")
    assert "takes longer than" in _refused(WrongAnswerError, lock)
    monkeypatch.setattr(hub_lock_client, "bound_answers", lambda: bounds(size=500))
    assert "longer than 500 bytes" in _refused(WrongAnswerError, lock)


def test_headers_that_trickle_have_an_end(lock: Lock, monkeypatch: pytest.MonkeyPatch) -> None:
    """No single read times out; the answer as a whole does."""
    monkeypatch.setattr(hub_lock_client, "ANSWER_SECONDS", 0.5)
    with trickling_headers() as endpoint:
        assert "takes longer than" in _refused(WrongAnswerError, lock, endpoint=endpoint)


def _siblings(change: Callable[[dict[str, Any]], object]) -> Json:
    def changed(document: Any) -> Any:
        for sibling in document["siblings"]:
            change(sibling)
        return document

    return Json(changed)


@pytest.mark.parametrize(
    "fault",
    [
        Json(lambda document: {**document, "sha": "main"}),  # type: ignore[dict-item]
        Json(lambda document: {**document, "sha": None}),  # type: ignore[dict-item]
        Json(lambda document: {**document, "siblings": [{"rfilename": 1}]}),  # type: ignore[dict-item]
        Json(lambda document: {**document, "siblings": "none"}),  # type: ignore[dict-item]
        Json(lambda document: {**document, "siblings": [{}]}),  # type: ignore[dict-item]
        Json(lambda document: {**document, "lastModified": "now"}),  # type: ignore[dict-item]
        _siblings(lambda sibling: sibling.pop("size")),
        _siblings(lambda sibling: sibling.update(size="1")),
        _siblings(lambda sibling: sibling.update(size=-1)),
        _siblings(lambda sibling: sibling.update(size=1 << 70)),
        _siblings(lambda sibling: sibling.update(blobId=None)),
        _siblings(lambda sibling: sibling.update(blobId="0" * 40)),
        _siblings(lambda sibling: sibling.update(lfs={})),
        _siblings(lambda sibling: sibling.update(lfs={"size": 1, "sha256": "x", "pointerSize": 1})),
        _siblings(lambda sibling: sibling.update(lfs={"size": -1, "sha256": "0" * 64})),
        _siblings(lambda sibling: sibling.update(lfs="yes")),
        _siblings(lambda sibling: sibling.update(rfilename="config.json")),
        _siblings(lambda sibling: sibling.update(rfilename="../" + sibling["rfilename"])),
        _siblings(lambda sibling: sibling.update(rfilename="/" + sibling["rfilename"])),
        _siblings(lambda sibling: sibling.update(rfilename=sibling["rfilename"] + "\0")),
        _siblings(lambda sibling: sibling.update(rfilename="a//" + sibling["rfilename"])),
        _siblings(lambda sibling: sibling.update(rfilename=["config.json"])),
    ],
)
def test_believes_no_impossible_list(hub: Hub, lock: Lock, fault: Fault) -> None:
    hub.misbehave(fault, "/api/*", times=100)
    _refused(WrongAnswerError, lock)


@pytest.mark.parametrize(
    "name",
    [
        "A\\b",
        "c:d",
        "e\n",
        "\u202efg",
        "h ",
        "i.",
        "u\u0308",
        "\uff0e\uff0e",
        "CONFIG.json",
        "\ud800",
        "config.json/x",
        "x*",
        "y" * 256,
    ],
)
def test_locks_no_name_that_cannot_be_a_file_everywhere(hub: Hub, lock: Lock, name: str) -> None:
    expected = lock()
    path = f"sub/{name}" if "config" not in name.lower() else name
    hub.add(HubRepository(TINY, {**FILES, path: b"x"}))
    # Nobody needs it: it may lie there.
    assert lock().files == expected.files
    message = _refused(UnsuitableCheckpointError, lock, include=("*",), pickle=True)
    assert "the path" in message


# Of a kind that the ask below allows.
_ALLOWED = ("pickle", "pickle in capitals", "code", "library")
LISTED = {name: path for name, path in HOSTILE_PATHS.items() if name not in _ALLOWED}


@pytest.mark.parametrize("path", LISTED.values(), ids=LISTED.keys())
def test_refuses_a_list_with_a_hostile_name(hub: Hub, lock: Lock, path: str) -> None:
    entry = {"rfilename": path, "size": 1, "blobId": "0" * 40}

    def more(document: Any) -> Any:
        return {**document, "siblings": [*document["siblings"], entry]}

    hub.misbehave(Json(more), "/api/*", times=100)
    with pytest.raises((UnsuitableCheckpointError, WrongAnswerError)) as caught:
        lock(include=("*",), pickle=True, remote_code=True)
    assert str(caught.value).isprintable() and len(str(caught.value)) < 500


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


def test_the_process_is_told_whom_to_ask_through_its_channel(hub: Hub, tmp_path: Path) -> None:
    asks = (CheckpointAsk("acme/private"), CheckpointAsk("acme/gated"))
    result, output = _process(hub, asks, tmp_path)
    assert result.returncode == 0, result.stderr
    text = (output / LOCK_NAME).read_text()
    read = CheckpointLock.from_json(text)
    assert list(read.checkpoints) == ["acme/gated@main", "acme/private@main"]
    assert read.to_json() == text
    assert (output / NOTES_NAME).read_text() == ""
    assert {request.token for request in hub.requests} == {TOKEN}
    for path in tmp_path.rglob("*"):
        assert path.is_dir() or TOKEN.encode() not in path.read_bytes()
    assert TOKEN not in result.stdout + result.stderr


def test_the_process_fails_in_one_line_and_leaves_nothing(hub: Hub, tmp_path: Path) -> None:
    result, output = _process(hub, (ASK, CheckpointAsk("acme/absent")), tmp_path)
    assert result.returncode == 1
    assert result.stderr.splitlines() == [
        "acme/absent@main: there is no such model, or it is private (404). Check the id, and that "
        "the account of your token may read it."
    ]
    assert not output.exists()


def _process(
    hub: Hub, asks: tuple[CheckpointAsk, ...], folder: Path
) -> tuple[subprocess.CompletedProcess[str], Path]:
    content = LockRequest(asks).to_json().encode()
    (folder / "request.json").write_bytes(content)
    environment = {"HF_ENDPOINT": hub.endpoint, "HF_TOKEN": TOKEN, "HOME": str(folder / "home")}
    with Listener(content, FetchOrder("", "", "", {}, environment)):
        result = subprocess.run(
            [sys.executable, "-m", "model_export.checkpoints.hub_lock", "request.json", "locked"],
            cwd=folder,
            env={"PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
            capture_output=True,
            text=True,
            check=False,
        )
    return result, folder / "locked"
