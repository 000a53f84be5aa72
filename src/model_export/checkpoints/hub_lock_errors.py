"""The errors that end a lock process, each in one line with its remedy; none quotes a header."""

from __future__ import annotations

from model_export.checkpoint_paths import shown


class HubLockError(Exception):
    """A checkpoint that can't be locked: which, why, and what to do.

    `problem` and `remedy` are one sentence each, without the final full stop.
    """

    def __init__(self, subject: str, problem: str, remedy: str) -> None:
        super().__init__(f"{subject}: {problem}. {remedy}.")
        self.subject = subject
        self.problem = problem
        self.remedy = remedy


class NoAccessError(HubLockError):
    """The hub doesn't let this account, or nobody, have it."""


class NotOnHubError(HubLockError):
    """The id, the revision or a file isn't on the hub."""


class UnreachableHubError(HubLockError):
    """The hub can't be asked, doesn't answer in time, or isn't one."""


class WrongAnswerError(HubLockError):
    """The hub answers what can't be true."""


class UnsuitableCheckpointError(HubLockError):
    """The repository has nothing that an export could take, or not as the target asks."""


def refused(subject: str, status: int, code: str, message: str, has_token: bool) -> HubLockError:
    """The error for an answer that asking again wouldn't change.

    `status` is HTTP's, `code` and `message` the hub's `X-Error-Code` and `X-Error-Message`.
    """
    log_in = "log in (`hf auth login`) or set HF_TOKEN"
    if code == "GatedRepo":
        remedy = "Ask for access on the model's page"
        return NoAccessError(
            subject,
            f"it is gated, and {'this account has' if has_token else 'you have'} no access",
            f"{remedy} with the account of your token" if has_token else f"{remedy}, then {log_in}",
        )
    if code == "RevisionNotFound":
        return NotOnHubError(
            subject,
            "the hub has no such revision",
            "Write a branch, tag, commit or `refs/pr/N` that it has",
        )
    if code == "EntryNotFound":
        return NotOnHubError(subject, "the hub lists a file that it doesn't have", "Lock it again")
    if status == 401 and has_token and code != "RepoNotFound":
        return NoAccessError(
            subject,
            "the hub doesn't accept your token (401)",
            "Renew it: `hf auth login`, or HF_TOKEN where that is set",
        )
    if "disabled" in message.lower():
        return NoAccessError(
            subject, f"the hub has disabled it ({status})", "Choose another checkpoint"
        )
    if status == 401 or code == "RepoNotFound":
        return NotOnHubError(
            subject,
            f"there is no such model, or it is private ({status})",
            "Check the id, and that the account of your token may read it"
            if has_token
            else f"Check the id; if it is private, {log_in}",
        )
    if status == 403:
        return NoAccessError(
            subject,
            "it is forbidden to this account (403)",
            "Give the token read access to it, or ask its owner",
        )
    if status in (404, 410):
        return NotOnHubError(
            subject, f"the hub doesn't have it ({status})", "Check the id, and HF_ENDPOINT"
        )
    if status == 429:
        return UnreachableHubError(
            subject, "the hub limits the rate of requests (429)", f"Wait some minutes, or {log_in}"
        )
    return UnreachableHubError(
        subject, f"the hub answers HTTP status {status}", "Try again later, or check HF_ENDPOINT"
    )


def renamed(subject: str, new: str) -> HubLockError:
    """The error for an id that the hub redirects to another one."""
    return NotOnHubError(subject, f"its id is {shown(new)} now", "Write that id in the BUILD file")


def wrong_answer(subject: str, problem: str) -> HubLockError:
    """The error for an answer that contradicts itself, or is none."""
    return WrongAnswerError(
        subject, problem, "Try again, or check HF_ENDPOINT: a mirror may not be faithful"
    )
