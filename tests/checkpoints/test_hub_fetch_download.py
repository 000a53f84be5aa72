"""How long a download bears with a hub: every stall ends, and so does every series of failures."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest
from huggingface_hub import constants

from hub.faults import Cut, Slow, Stall, Status
from hub.repositories import HubRepository
from hub.server import Hub
from hub.trickling import trickling_headers
from model_export.checkpoints import hub_fetch_download
from model_export.checkpoints.hub_fetch_download import Patience, download
from model_export.checkpoints.hub_fetch_errors import FetchError, HubPlace
from model_export.checkpoints.hub_fetch_files import open_partial
from model_export.checkpoints.hub_fetch_progress import Progress
from model_export.checkpoints.hub_fetch_request import Content

REPO = "acme/tiny"
WEIGHTS = hashlib.shake_256(b"weights").digest((3 << 20) + 17)
CONTENT = Content(hashlib.sha256(WEIGHTS).hexdigest(), len(WEIGHTS))
CDN_PATH = f"/{CONTENT.sha256}"


@pytest.fixture(autouse=True)
def _online(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub([HubRepository(REPO, {"model.safetensors": WEIGHTS})]) as hub:
        yield hub


class Impatience:
    """A patience of fractions of a second, which notes the pauses and doesn't make them."""

    def __init__(self) -> None:
        self.pauses: list[float] = []
        self.patience = Patience(answer=0.5, window=0.4, sleep=self.pauses.append)


def _download(endpoint: str, hub: Hub, folder: Path, patience: Patience) -> bytes:
    """The file that arrives; raises what `download` raises."""
    commit = hub.repositories[REPO].refs["refs/heads/main"]
    place = HubPlace(REPO, "main", commit, "model.safetensors", False)
    target = folder / "file"
    with open_partial(folder / "partial", folder / "private", CONTENT) as partial:
        source = hub_fetch_download.Hub(endpoint, {}, patience)
        download(source, place, CONTENT, partial, Progress(CONTENT.size, lambda line: None))
        partial.move_to(target)
    return target.read_bytes()


@pytest.mark.parametrize("after", [-1, 0, 2 << 20], ids=["no-answer", "no-body", "in-the-body"])
def test_a_stall_is_given_up_and_tried_again(hub: Hub, tmp_path: Path, after: int) -> None:
    hub.misbehave(Stall(after), path=CDN_PATH)
    given = Impatience()
    assert _download(hub.endpoint, hub, tmp_path, given.patience) == WEIGHTS
    assert len(given.pauses) == 1


def test_stalls_without_end_are_an_error(hub: Hub, tmp_path: Path) -> None:
    hub.misbehave(Stall(0), times=1000)
    given = Impatience()
    started = time.monotonic()
    with pytest.raises(FetchError, match=r"the hub stalls \(attempt 6, the last\)\. Build again"):
        _download(hub.endpoint, hub, tmp_path, given.patience)
    assert time.monotonic() - started < 10
    assert len(given.pauses) == 5
    for pause, whole in zip(given.pauses, (1, 2, 4, 8, 16), strict=True):
        assert whole / 2 <= pause <= whole


def test_a_trickle_is_a_stall(hub: Hub, tmp_path: Path) -> None:
    hub.misbehave(Slow(1000), path=CDN_PATH, times=1000)
    with pytest.raises(FetchError, match=r"only \d+ bytes in \d+ s \(attempt 6, the last\)"):
        _download(hub.endpoint, hub, tmp_path, Impatience().patience)


def test_headers_that_trickle_are_a_stall(hub: Hub, tmp_path: Path) -> None:
    """No single read times out; the answer as a whole does."""
    last = pytest.raises(FetchError, match=r"the hub stalls \(attempt 6, the last\)")
    with trickling_headers() as endpoint, last:
        _download(endpoint, hub, tmp_path, Impatience().patience)


def test_cuts_that_leave_something_are_no_failure(hub: Hub, tmp_path: Path) -> None:
    """Each brings another 256 KiB: more attempts than allowed, and the file arrives."""
    hub.misbehave(Cut(256 << 10), path=CDN_PATH, times=9)
    given = Impatience()
    patience = Patience(sleep=given.pauses.append, progress_bytes=100_000)
    assert _download(hub.endpoint, hub, tmp_path, patience) == WEIGHTS
    assert len(given.pauses) == 9


def test_cuts_at_one_place_are_an_error(hub: Hub, tmp_path: Path) -> None:
    hub.misbehave(Cut(0), path=CDN_PATH, times=1000)
    with pytest.raises(FetchError, match=r"the connection was cut \(attempt 6, the last\)"):
        _download(hub.endpoint, hub, tmp_path, Impatience().patience)


def test_an_error_leaves_what_can_be_resumed(hub: Hub, tmp_path: Path) -> None:
    hub.misbehave(Cut(2 << 20), path=CDN_PATH)
    hub.misbehave(Status(500), path=CDN_PATH, times=1000)
    with pytest.raises(FetchError, match="HTTP status 500"):
        _download(hub.endpoint, hub, tmp_path, Impatience().patience)
    (partial,) = (tmp_path / "partial").iterdir()
    beginning = partial.read_bytes()
    assert len(beginning) > 1 << 20 and WEIGHTS.startswith(beginning)
    hub.behave()
    hub.requests.clear()
    assert _download(hub.endpoint, hub, tmp_path, Impatience().patience) == WEIGHTS
    assert hub.requests[0].headers["range"] == f"bytes={len(beginning)}-"


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"Retry-After": "7"}, 7),
        ({"Retry-After": format_datetime(datetime.now(UTC) + timedelta(seconds=90))}, 90),
        ({"Retry-After": format_datetime(datetime(2020, 1, 1))}, 1),
        ({"Retry-After": "soon"}, 1),
        ({"Retry-After": "-5"}, 1),
        ({"ratelimit": '"resolvers";r=0;t=11'}, 11),
        ({"ratelimit": '"resolvers";r=9;t=11'}, 1),
    ],
    ids=["seconds", "date", "past", "no-number", "negative", "rate-limit", "not-that-limit"],
)
def test_the_wait_that_a_hub_asks_for(
    hub: Hub, tmp_path: Path, headers: dict[str, str], wait: int
) -> None:
    hub.misbehave(Status(429, headers))
    given = Impatience()
    assert _download(hub.endpoint, hub, tmp_path, given.patience) == WEIGHTS
    (pause,) = given.pauses
    # Without a wait that is granted the pause is the first one, up to half of it less; a date is
    # one of this file's import.
    assert wait / 2 <= pause <= wait + 1


def test_a_wait_that_is_too_long_is_an_error(hub: Hub, tmp_path: Path) -> None:
    hub.misbehave(Status(429, {"Retry-After": "99999999999999999999"}))
    with pytest.raises(FetchError, match="asks to be left alone for 999999999 s"):
        _download(hub.endpoint, hub, tmp_path, Impatience().patience)


def test_progress_is_told_now_and_then() -> None:
    now = [0.0]
    lines: list[str] = []
    progress = Progress(3_000_000_000, lines.append, every_seconds=5, clock=lambda: now[0])
    progress.have(1_000_000_000)
    for _ in range(20):
        now[0] += 1
        progress.fetched("acme/tiny/model.safetensors", 50_000_000)
    assert len(lines) == 4
    assert lines[0] == "acme/tiny/model.safetensors: 1.2 GB of 3.0 GB, 50.0 MB/s, 35 s left"
    progress.done()
    assert lines[-1] == "1.0 GB from the hub and 1.0 GB from this machine in 20 s"
