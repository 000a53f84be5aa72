"""What a lock process asks the hub: the state of a repository, and its small files.

An answer is believed as far as it can be checked: hashes of LFS files are the hub's word, which the
fetch then holds it to; a file in git has to have the blob id that the hub lists for its path.
"""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx2
from huggingface_hub import HfApi, constants, get_session, hf_hub_url
from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled
from huggingface_hub.hf_api import ModelInfo
from huggingface_hub.utils import build_hf_headers, get_token, hf_raise_for_status

from model_export.checkpoint_lock import is_commit
from model_export.checkpoint_paths import shown
from model_export.checkpoints.hub_alarm import alarm
from model_export.checkpoints.hub_lock_bounds import (
    ANSWER_SECONDS,
    STEP_SECONDS,
    BoundExceededError,
    bound_answers,
    too_long,
)
from model_export.checkpoints.hub_lock_errors import (
    HubLockError,
    UnreachableHubError,
    refused,
    renamed,
    wrong_answer,
)

_TRIES = 5
_LONGEST_WAIT_SECONDS = 60.0
# After this a request isn't tried again: with the bounds of one answer, no lock takes for ever.
_TRYING_SECONDS = 600.0
# Worth asking again: too many requests, and what a hub says while it restarts.
_PASSING = frozenset({408, 429, 500, 502, 503, 504})
_LICENSE_LENGTH = 200

_Answer = TypeVar("_Answer")


@dataclass(frozen=True)
class ListedFile:
    """A file as the hub lists it: `sha256` for LFS files, `blob_id` (git's) for the others."""

    path: str
    size: int
    blob_id: str
    sha256: str | None


@dataclass(frozen=True)
class RepositoryState:
    """A repository at one commit: licence and gating by its model card, and all files by path."""

    commit: str
    license: str | None
    gated: bool | str
    files: dict[str, ListedFile]


class HubClient:
    """Asks the hub at `endpoint` (None: `HF_ENDPOINT`), with the user's token if there is one.

    Connections that fail and answers that may pass are tried five times, within ten minutes;
    `wait` sleeps between them, for as long as the hub says (a minute at most), else 1, 2, 4, 8 s
    with jitter.
    """

    def __init__(
        self, endpoint: str | None = None, wait: Callable[[float], None] = time.sleep
    ) -> None:
        self._wait = wait
        self._patient_until = time.monotonic() + _TRYING_SECONDS
        disabled = constants.HF_HUB_DISABLE_IMPLICIT_TOKEN
        self._token = None if disabled else get_token()
        self._api = HfApi(endpoint, token=self._token or False)
        bound_answers()

    def state(self, subject: str, repo: str, revision: str) -> RepositoryState:
        """The state of `repo` at a branch, tag, commit or ref; `subject` names it in errors.

        Raises HubLockError.
        """
        info = self._ask(
            subject,
            lambda: self._api.model_info(
                repo, revision=revision, files_metadata=True, timeout=STEP_SECONDS
            ),
        )
        if info.id != repo:
            raise renamed(subject, str(info.id))
        if not isinstance(info.sha, str) or not is_commit(info.sha):
            raise wrong_answer(subject, f"the hub calls {shown(info.sha)} a commit")
        if is_commit(revision) and info.sha != revision:
            raise wrong_answer(subject, f"the hub answers with another commit, {info.sha}")
        gated = info.gated if info.gated in ("auto", "manual") else bool(info.gated)
        return RepositoryState(
            commit=info.sha,
            license=_license(info),
            gated="manual" if gated is True else gated,
            files=_files(subject, info),
        )

    def read(self, subject: str, repo: str, commit: str, file: ListedFile) -> bytes:
        """The content of a small file; raises HubLockError if it isn't the listed one."""
        where = f"{subject}: {shown(file.path)}"
        url = hf_hub_url(repo, file.path, revision=commit, endpoint=self._api.endpoint)
        headers = build_hf_headers(token=self._token or False)
        headers["Accept-Encoding"] = "identity"

        def get() -> bytes:
            answer = get_session().get(url, headers=headers, timeout=STEP_SECONDS)
            hf_raise_for_status(answer)
            return answer.content

        content = self._ask(where, get)
        if len(content) != file.size:
            raise wrong_answer(where, f"it has {len(content)} bytes, and the hub lists {file.size}")
        if file.sha256 is not None:
            if hashlib.sha256(content).hexdigest() != file.sha256:
                raise wrong_answer(where, "it hasn't the sha256 that the hub lists")
        elif _blob_id(content) != file.blob_id:
            raise wrong_answer(where, "it hasn't the git hash that the hub lists")
        return content

    def _ask(self, subject: str, get: Callable[[], _Answer]) -> _Answer:
        """What `get` returns, tried as often as it helps. Raises HubLockError."""
        for tried in range(_TRIES):
            last = tried == _TRIES - 1 or time.monotonic() > self._patient_until
            pause = 2.0**tried * random.uniform(0.5, 1)
            try:
                with alarm(ANSWER_SECONDS, too_long(ANSWER_SECONDS)):
                    return get()
            except OfflineModeIsEnabled as error:
                raise UnreachableHubError(
                    subject, "HF_HUB_OFFLINE is set, and only the hub knows it", "Unset it to lock"
                ) from error
            except HfHubHTTPError as error:
                status = error.response.status_code
                if status not in _PASSING or last:
                    headers = error.response.headers
                    raise refused(
                        subject,
                        status,
                        headers.get("X-Error-Code", ""),
                        headers.get("X-Error-Message", ""),
                        self._token is not None,
                    ) from error
                pause = max(pause, _retry_after(error.response))
            except httpx2.TransportError as error:
                if last:
                    raise self._unreachable(subject, error) from error
            except (httpx2.TooManyRedirects, BoundExceededError) as error:
                problem = (
                    str(error)
                    if isinstance(error, BoundExceededError)
                    else "the hub redirects in circles"
                )
                raise wrong_answer(subject, problem) from error
            except (httpx2.HTTPError, httpx2.InvalidURL) as error:
                raise self._unreachable(subject, error) from error
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
                # huggingface_hub builds its own objects from an answer without checking it.
                raise wrong_answer(
                    subject, f"the hub's answer isn't what a hub answers ({type(error).__name__})"
                ) from error
            self._wait(pause)
        raise AssertionError("the last try returns or raises")

    def _unreachable(self, subject: str, error: Exception) -> HubLockError:
        # Without user name and password, which a mirror's address may have.
        host = urlsplit(self._api.endpoint).hostname or "HF_ENDPOINT"
        return UnreachableHubError(
            subject,
            f"{host} can't be asked ({type(error).__name__})",
            "Check the network, and HF_ENDPOINT",
        )


def _retry_after(response: httpx2.Response) -> float:
    try:
        seconds = float(response.headers.get("Retry-After", "0"))
    except ValueError:
        return 0.0
    return min(max(seconds, 0.0), _LONGEST_WAIT_SECONDS)


def _license(info: ModelInfo) -> str | None:
    card: Any = info.card_data
    named = getattr(card, "license", None)
    if named == "other":
        named = getattr(card, "license_name", None) or named
    if isinstance(named, list):
        named = ", ".join(map(str, named))
    if named is None:
        return None
    printable = "".join(mark if mark.isprintable() else " " for mark in str(named))
    return " ".join(printable.split())[:_LICENSE_LENGTH] or None


def _files(subject: str, info: ModelInfo) -> dict[str, ListedFile]:
    files: dict[str, ListedFile] = {}
    for sibling in info.siblings or ():
        path: Any = sibling.rfilename
        size: Any = sibling.lfs.size if sibling.lfs else sibling.size
        if not isinstance(path, str) or path in files or not _may_be_in_git(path):
            raise wrong_answer(subject, f"the hub lists the file {shown(path)}")
        if type(size) is not int or not isinstance(sibling.blob_id, str):
            raise wrong_answer(subject, f"the hub lists {shown(path)} without size or hash")
        sha256 = sibling.lfs.sha256 if sibling.lfs else None
        files[path] = ListedFile(path, size, sibling.blob_id, sha256)
    return files


def _may_be_in_git(path: str) -> bool:
    """Whether git could hold the path; what else a hub lists, it made up."""
    return "\0" not in path and all(part not in ("", ".", "..") for part in path.split("/"))


def _blob_id(content: bytes) -> str:
    digest = hashlib.sha1(b"blob %d\0" % len(content), usedforsecurity=False)
    digest.update(content)
    return digest.hexdigest()
