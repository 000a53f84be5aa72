"""A fetch from a hub that lies, cuts, limits and leads astray: the right bytes or one line."""

from __future__ import annotations

import time

import pytest

from checkpoints.hub_fetch.sandbox import WEIGHTS, Sandbox, sha256
from hub.faults import Corrupt, Cut, IgnoreRange, RedirectLoop, Status, WrongSize
from model_export.checkpoints.hub_fetch_request import Content


def test_another_file_is_refused_before_it_is_read(sandbox: Sandbox) -> None:
    """The hub says in its redirect which file it has: nothing of 9 MiB is fetched."""
    wrong = Content("0" * 64, len(WEIGHTS))
    fetched = sandbox.fetch("model.safetensors", content=wrong)
    assert (fetched.exit_code, fetched.files) == (1, {})
    assert fetched.last == (
        "`acme/tiny/model.safetensors` isn't what the lock pins: its sha256 is "
        f"{sha256(WEIGHTS)}, not {'0' * 64}, so the hub's file changed or something between "
        "lies. If the change is known and wanted: ./pants lock-checkpoints --upgrade=acme/tiny."
    )
    assert list((sandbox.root / "named_cache").iterdir()) == []


def test_a_corrupt_body_is_refused_and_not_kept(sandbox: Sandbox) -> None:
    sandbox.hub.misbehave(Corrupt(7 << 20), path="/" + sha256(WEIGHTS))
    assert "its sha256 is " in sandbox.refusal()
    assert list((sandbox.root / "named_cache").iterdir()) == []
    assert sandbox.fetch("model.safetensors").exit_code == 0


@pytest.mark.parametrize("difference", [-1, 1, 1000])
def test_a_wrong_size(sandbox: Sandbox, difference: int) -> None:
    sandbox.hub.misbehave(WrongSize(difference), path="/" + sha256(WEIGHTS))
    assert (
        f"its size in bytes is {len(WEIGHTS) + difference}, not {len(WEIGHTS)}" in sandbox.refusal()
    )


@pytest.mark.parametrize(
    "fault",
    [
        Cut(5 << 20),
        Cut(0),
        Cut(-1),
        Status(500),
        Status(503, {"Retry-After": "1"}),
        Status(429, {"Retry-After": "1"}),
        Status(429, {"ratelimit": '"resolvers";r=0;t=1'}),
    ],
    ids=["cut", "cut-at-once", "no-answer", "500", "503", "429", "ratelimit"],
)
def test_what_passes_is_tried_again(sandbox: Sandbox, fault: Cut | Status) -> None:
    sandbox.hub.misbehave(fault, path="/" + sha256(WEIGHTS))
    fetched = sandbox.fetch("model.safetensors")
    assert (fetched.exit_code, fetched.files) == (0, {sha256(WEIGHTS): WEIGHTS})
    ranges = [r.headers.get("range") for r in sandbox.hub.requests if r.server == "cdn"]
    if fault == Cut(5 << 20):
        assert ranges[0] is None
        # The client may have lost what lay in a buffer as the connection ended.
        assert ranges[1] is not None and int(ranges[1][len("bytes=") : -1]) > 4 << 20
    assert any("again in" in line for line in fetched.reports)


def test_a_hub_that_cannot_resume_sends_it_all(sandbox: Sandbox) -> None:
    sandbox.hub.misbehave(Cut(5 << 20), path="/" + sha256(WEIGHTS))
    sandbox.hub.misbehave(IgnoreRange(), path="/" + sha256(WEIGHTS), times=2)
    fetched = sandbox.fetch("model.safetensors")
    assert (fetched.exit_code, fetched.files) == (0, {sha256(WEIGHTS): WEIGHTS})


def test_a_long_wait_ends_the_fetch_at_once(sandbox: Sandbox) -> None:
    sandbox.hub.misbehave(Status(429, {"Retry-After": "3600"}))
    started = time.monotonic()
    assert "has to wait: the hub asks to be left alone for 3600 s" in sandbox.refusal()
    assert time.monotonic() - started < 20


def test_redirects_without_end(sandbox: Sandbox) -> None:
    sandbox.hub.misbehave(RedirectLoop(), times=1000)
    assert "the hub's redirects don't end" in sandbox.refusal()


@pytest.mark.parametrize(
    "location", ["file:///etc/passwd", "http://[bad", "//", "\\\\host\\share", "ftp://localhost/x"]
)
def test_a_redirect_to_nowhere(sandbox: Sandbox, location: str) -> None:
    sandbox.hub.misbehave(Status(302, {"Location": location}), times=1000)
    sandbox.refusal()
