"""The errors that end a fetch, each in one line with its remedy; none quotes a header or a URL.

A URL of a hub's CDN is signed, and the text of an HTTP library's error can quote what it was given,
so both are as secret as the token.
"""

from __future__ import annotations

from dataclasses import dataclass


class FetchError(Exception):
    """A file that can't be fetched: which, why, and what to do.

    `problem` and `remedy` are one sentence each, without the final full stop.
    """

    def __init__(self, subject: str, problem: str, remedy: str) -> None:
        super().__init__(f"`{subject}` {problem}. {remedy}.")
        self.subject = subject
        self.problem = problem
        self.remedy = remedy


@dataclass(frozen=True)
class HubPlace:
    """Where a file is on the hub, for errors: repository, what the lock pins, path."""

    repo: str
    revision: str
    commit: str
    path: str
    has_token: bool

    @property
    def name(self) -> str:
        return f"{self.repo}/{self.path}"

    @property
    def upgrade(self) -> str:
        return f"./pants lock-checkpoints --upgrade={self.repo}"


def refused(place: HubPlace, status: int, code: str) -> FetchError:
    """The error for an answer that asking again wouldn't change.

    `status` is HTTP's, `code` the hub's `X-Error-Code` or empty.
    """
    if code == "GatedRepo":
        remedy = (
            "Ask for access on the model's page with the account of your token"
            if place.has_token
            else "Ask for access on the model's page, then log in (`hf auth login`) or set HF_TOKEN"
        )
        return FetchError(place.name, "is gated, and this account has no access", remedy)
    if status == 401 and place.has_token and code != "RepoNotFound":
        return FetchError(
            place.name,
            "was refused: the hub doesn't accept the token (401)",
            "Renew it: `hf auth login`, or HF_TOKEN where that is set",
        )
    if code == "RevisionNotFound":
        return FetchError(
            place.name,
            f"is locked at commit {place.commit}, which the hub doesn't have any more",
            f"Lock what it has: {place.upgrade}",
        )
    if code == "EntryNotFound":
        return FetchError(
            place.name,
            f"isn't in commit {place.commit} of the hub's repository",
            f"Lock what it has: {place.upgrade}",
        )
    if status == 401 or code == "RepoNotFound":
        remedy = (
            "Check the id, and that the account of your token may read it"
            if place.has_token
            else "Check the id; if it is private, log in (`hf auth login`) or set HF_TOKEN"
        )
        return FetchError(place.name, f"isn't there, or is private ({status})", remedy)
    if status == 403:
        return FetchError(
            place.name,
            "is forbidden to this account (403)",
            "Give the token read access to the repository",
        )
    if status in (404, 410):
        return FetchError(
            place.name,
            f"wasn't found on the hub ({status})",
            f"Check HF_ENDPOINT, or lock what the hub has: {place.upgrade}",
        )
    return FetchError(
        place.name, f"was refused by the hub (HTTP status {status})", "Check HF_ENDPOINT"
    )


def changed(place: HubPlace, what: str, expected: object, got: object) -> FetchError:
    """The error for a file that isn't the locked one."""
    return FetchError(
        place.name,
        f"isn't what the lock pins: its {what} is {got}, not {expected}, so the hub's file changed "
        "or something between lies",
        f"If the change is known and wanted: {place.upgrade}",
    )
