"""Locking from a hub that fails, lies or lists what can't be: it gets over it, or refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from checkpoints.hub_lock.locking import CONFIG, FILES, TINY, Lock, refused
from hub.faults import (
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
from hub.repositories import HubRepository
from hub.server import Hub
from hub.trickling import trickling_headers
from model_export.checkpoints import hub_lock_bounds, hub_lock_client
from model_export.checkpoints.hub_lock_errors import (
    UnreachableHubError,
    UnsuitableCheckpointError,
    WrongAnswerError,
)


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
    assert "limits the rate" in refused(UnreachableHubError, lock)


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
    refused(UnreachableHubError, lock)
    hub.behave()
    hub.misbehave(WrongSize(-1), "*/resolve-cache/*config.json", times=100)
    with pytest.raises((WrongAnswerError, UnreachableHubError)):
        lock()


def test_an_answer_has_an_end(hub: Hub, lock: Lock, monkeypatch: pytest.MonkeyPatch) -> None:
    bounds = hub_lock_bounds.bound_answers
    monkeypatch.setattr(hub_lock_client, "bound_answers", lambda: bounds(seconds=0.5))
    hub.misbehave(Slow(bytes_per_second=200), "/api/*")
    assert "takes longer than" in refused(WrongAnswerError, lock)
    monkeypatch.setattr(hub_lock_client, "bound_answers", lambda: bounds(size=500))
    assert "longer than 500 bytes" in refused(WrongAnswerError, lock)


def test_headers_that_trickle_have_an_end(lock: Lock, monkeypatch: pytest.MonkeyPatch) -> None:
    """No single read times out; the answer as a whole does."""
    monkeypatch.setattr(hub_lock_client, "ANSWER_SECONDS", 0.5)
    with trickling_headers() as endpoint:
        assert "takes longer than" in refused(WrongAnswerError, lock, endpoint=endpoint)


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
    refused(WrongAnswerError, lock)


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
    message = refused(UnsuitableCheckpointError, lock, include=("*",), pickle=True)
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
