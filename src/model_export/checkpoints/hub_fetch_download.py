"""Downloads one file from the hub: streamed, resumed where it stopped, and believed by hash alone.

The hub's client library makes the URL, the headers and the session; its own download keeps no bound
on a slow server and knows no hash, so the loop is ours.
"""

from __future__ import annotations

import contextlib
import random
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import httpx2
from huggingface_hub import hf_hub_url
from huggingface_hub.utils import close_session, get_session, parse_ratelimit_headers

from model_export.checkpoints.hub_alarm import alarm
from model_export.checkpoints.hub_fetch_errors import FetchError, HubPlace, changed, refused
from model_export.checkpoints.hub_fetch_files import Partial
from model_export.checkpoints.hub_fetch_progress import Progress
from model_export.checkpoints.hub_fetch_request import Content

_TRANSIENT = frozenset((408, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524))
_CONTENT_RANGE = re.compile(r"bytes (?P<start>\d{1,20})-\d{1,20}/(?P<total>\d{1,20}|\*)")
_NAME_SHOWN = 100
_LINKED_SHA256 = re.compile(r'(?:W/)?"?(?P<sha256>[0-9a-f]{64})"?')
_RESOLVED = re.compile(r"(?:https?://[^/]+)?/(?P<repo>[^/?]+(?:/[^/?]+)?)/resolve/[^?]*(?:\?.*)?")


@dataclass(frozen=True)
class Patience:
    """How long a fetch bears with a hub; every wait is in seconds, and bounded.

    A server is given up after `attempts` failures without `progress_bytes` new bytes between them,
    after `connect_attempts` if it never answered at all. The pause doubles from `first_pause` to
    `longest_pause`, less up to half of it at random, so that many builds don't come back at once.
    A wait that the server asks for (`Retry-After`) is granted up to `longest_wait`.

    An answer takes at most `answer`; then at least `least_bytes` have to arrive in each `window`.
    """

    attempts: int = 6
    connect_attempts: int = 3
    first_pause: float = 1.0
    longest_pause: float = 30.0
    longest_wait: float = 300.0
    answer: float = 60.0
    window: float = 60.0
    least_bytes: int = 64 << 10
    progress_bytes: int = 1 << 20
    sleep: Callable[[float], None] = field(default=time.sleep, compare=False)


@dataclass(frozen=True)
class Hub:
    """A hub, and as whom to ask it: `headers` has the token."""

    endpoint: str
    headers: dict[str, str] = field(repr=False)
    patience: Patience = Patience()


class _Again(Exception):
    """This attempt failed and the next may not: why, and how long the server wants to be left."""

    def __init__(self, problem: str, wait: float = 0.0, answered: bool = True) -> None:
        super().__init__(problem)
        self.problem = problem
        self.wait = wait
        self.answered = answered


def download(
    hub: Hub, place: HubPlace, content: Content, partial: Partial, progress: Progress
) -> None:
    """Fill `partial` with the file at `place`, whose content is known; resume what is there.

    Raises FetchError, after which `partial` holds a beginning of the file that can be resumed, or
    is gone.
    """
    url = hf_hub_url(place.repo, place.path, revision=place.commit, endpoint=hub.endpoint)
    progress.have(partial.size)
    resumed = partial.size > 0
    while True:
        if partial.size < content.size or not resumed:
            _attempts(hub, url, place, content, partial, progress)
        if partial.sha256 == content.sha256:
            return
        if not resumed:
            partial.drop()
            raise changed(place, "sha256", content.sha256, partial.sha256)
        # The beginning that an earlier fetch left may be what is wrong.
        progress.note(f"{place.name}: what an earlier fetch left is wrong, starting anew")
        progress.have(-partial.size)
        partial.restart()
        resumed = False


def _attempts(
    hub: Hub, url: str, place: HubPlace, content: Content, partial: Partial, progress: Progress
) -> None:
    """Ask until `partial` has the whole size."""
    patience = hub.patience
    failures = 0
    reached = partial.size
    answered = False
    while True:
        try:
            _attempt(hub, url, place, content, partial, progress)
            return
        except _Again as again:
            # The connection pool may hold a socket that an alarm left in the middle of something.
            close_session()
            answered = answered or again.answered
            if partial.size >= reached + patience.progress_bytes:
                reached = partial.size
                failures = 0
            failures += 1
            allowed = patience.attempts if answered else patience.connect_attempts
            if failures >= allowed:
                raise _given_up(hub, place, again.problem, failures, answered) from None
            if again.wait > patience.longest_wait:
                raise FetchError(
                    place.name,
                    f"has to wait: the hub asks to be left alone for {again.wait:.0f} s",
                    "Build again then; logged in (`hf auth login`, HF_TOKEN) its limits are higher",
                ) from None
            pause = min(patience.longest_pause, patience.first_pause * 2 ** (failures - 1))
            pause = again.wait or pause * random.uniform(0.5, 1.0)
            progress.note(f"{place.name}: {again.problem}; again in {pause:.0f} s")
            patience.sleep(pause)


def _given_up(hub: Hub, place: HubPlace, problem: str, failures: int, answered: bool) -> FetchError:
    if answered:
        return FetchError(
            place.name,
            f"couldn't be fetched: {problem} (attempt {failures}, the last)",
            "Build again: it goes on where it stopped",
        )
    return FetchError(
        place.name,
        f"isn't in the hub cache, and no hub can be reached: {problem}",
        "Check the network, HF_ENDPOINT and HTTPS_PROXY; or point HF_HUB_CACHE at a cache that has "
        "it",
    )


def _attempt(
    hub: Hub, url: str, place: HubPlace, content: Content, partial: Partial, progress: Progress
) -> None:
    """One request: append to `partial` until it has the whole size."""
    headers = {**hub.headers, "Accept-Encoding": "identity"}
    if partial.size:
        headers["Range"] = f"bytes={partial.size}-"
    try:
        with _answer(hub, url, headers) as response:
            _check_answer(response, place, content, partial, progress)
            _read(hub.patience, response, place, content, partial, progress)
    except httpx2.TooManyRedirects:
        raise FetchError(
            place.name, "can't be fetched: the hub's redirects don't end", "Check HF_ENDPOINT"
        ) from None
    except (httpx2.UnsupportedProtocol, httpx2.InvalidURL):
        raise FetchError(
            place.name,
            "can't be fetched: an address is no URL of http or https",
            "Check HF_ENDPOINT and HTTPS_PROXY; or the hub redirects to nowhere",
        ) from None
    except httpx2.ConnectError as error:
        raise _Again(_reason(error), answered=False) from None
    except httpx2.ConnectTimeout:
        raise _Again("no connection in time", answered=False) from None
    except httpx2.ProxyError:
        raise _Again("the proxy refuses the connection", answered=False) from None
    except httpx2.TimeoutException:
        raise _Again("the hub stalls") from None
    except (httpx2.TransportError, httpx2.DecodingError):
        raise _Again("the connection was cut") from None


@contextlib.contextmanager
def _answer(hub: Hub, url: str, headers: dict[str, str]) -> Iterator[httpx2.Response]:
    """The response to a GET once its headers are there, redirects followed.

    httpx2 drops `Authorization` where a redirect leaves the host.
    """
    patience = hub.patience
    timeout = httpx2.Timeout(patience.answer, read=patience.window)
    with contextlib.ExitStack() as stack:
        # A server that sends its headers byte by byte never runs into a read timeout.
        with alarm(patience.answer, httpx2.ReadTimeout("no answer in time")):
            response = stack.enter_context(
                get_session().stream(
                    "GET", url, headers=headers, timeout=timeout, follow_redirects=True
                )
            )
        yield response


def _check_answer(
    response: httpx2.Response,
    place: HubPlace,
    content: Content,
    partial: Partial,
    progress: Progress,
) -> None:
    """Refuse an answer that can't be the rest of the file before reading it."""
    status = response.status_code
    if status in _TRANSIENT:
        what = "the hub's rate limit is reached" if status == 429 else f"HTTP status {status}"
        raise _Again(what, _asked_wait(response))
    if status == 416 and partial.size:
        progress.have(-partial.size)
        partial.restart()
        raise _Again("the hub can't resume")
    if status not in (200, 206):
        raise refused(place, status, response.headers.get("X-Error-Code", ""))
    for redirect in response.history:
        linked = _LINKED_SHA256.fullmatch(redirect.headers.get("X-Linked-Etag", ""))
        if linked is not None and linked["sha256"] != content.sha256:
            raise changed(place, "sha256", content.sha256, linked["sha256"])
        renamed = _RESOLVED.fullmatch(redirect.headers.get("Location", ""))
        if renamed is not None and renamed["repo"] != place.repo:
            name = ascii(renamed["repo"][:_NAME_SHOWN])
            progress.note(f"{place.repo} is {name} on the hub by now; the lock's name still works")
    total = response.headers.get("Content-Length") if status == 200 else None
    if status == 206:
        given = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
        if given is None or int(given["start"]) != partial.size:
            progress.have(-partial.size)
            partial.restart()
            raise _Again("the hub sent another part than it was asked for")
        total = given["total"]
    elif partial.size:  # The server knows no ranges.
        progress.have(-partial.size)
        partial.restart()
    encoded = response.headers.get("Content-Encoding", "identity") != "identity"
    if total is not None and total.isdecimal() and not encoded and int(total) != content.size:
        raise changed(place, "size in bytes", content.size, int(total))


def _read(
    patience: Patience,
    response: httpx2.Response,
    place: HubPlace,
    content: Content,
    partial: Partial,
    progress: Progress,
) -> None:
    started = time.monotonic()
    arrived = 0
    for chunk in response.iter_bytes():
        if partial.size + len(chunk) > content.size:
            partial.drop()
            raise changed(place, "size in bytes", content.size, f"more than {content.size}")
        partial.write(chunk)
        progress.fetched(place.name, len(chunk))
        arrived += len(chunk)
        now = time.monotonic()
        if now - started >= patience.window:
            if arrived < patience.least_bytes:
                raise _Again(f"only {arrived} bytes in {now - started:.0f} s")
            started, arrived = now, 0
    if partial.size < content.size:
        raise _Again("the connection was cut")


def _asked_wait(response: httpx2.Response) -> float:
    """The seconds that a server asks for: `Retry-After`, seconds or date, or its rate limit."""
    asked = response.headers.get("Retry-After", "").strip()
    if asked.isdecimal():
        return float(asked[:9])
    if asked:
        with contextlib.suppress(ValueError):
            until = parsedate_to_datetime(asked)
            if until.tzinfo is None:
                until = until.replace(tzinfo=UTC)
            return max((until - datetime.now(UTC)).total_seconds(), 0.0)
    limit = parse_ratelimit_headers(response.headers) if response.status_code == 429 else None
    return float(limit.reset_in_seconds) if limit is not None and not limit.remaining else 0.0


def _reason(error: httpx2.ConnectError) -> str:
    """What the operating system or TLS says, and nothing that a library adds."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
        cause = cause.__cause__ or cause.__context__
    return "no connection"
