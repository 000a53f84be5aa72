"""Who a fetch is to the hub: its token, and what it says where that opens nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from checkpoints.hub_fetch.sandbox import REPO, TOKEN, Sandbox
from hub.faults import Status
from model_export.checkpoints.hub_fetch_channel import FetchOrder


def test_a_token_goes_to_the_hub_and_not_where_it_redirects(sandbox: Sandbox) -> None:
    sandbox.hub.repositories[REPO].gated = "auto"
    sandbox.environment["HF_TOKEN"] = TOKEN
    fetched = sandbox.fetch("model.safetensors")
    assert fetched.exit_code == 0
    sent = {
        request.server: request.headers.get("authorization") for request in sandbox.hub.requests
    }
    assert sent == {"hub": f"Bearer {TOKEN}", "cdn": None}
    assert TOKEN not in fetched.stderr + "".join(fetched.reports)


@pytest.mark.parametrize("place", ["HF_TOKEN_PATH", "HF_HOME", "HOME"])
def test_a_token_from_the_file_of_a_login(sandbox: Sandbox, tmp_path: Path, place: str) -> None:
    sandbox.hub.repositories[REPO].gated = "auto"
    file = tmp_path / "login/token"
    if place == "HOME":
        file = sandbox.home / ".cache/huggingface/token"
    else:
        sandbox.environment[place] = str(file if place == "HF_TOKEN_PATH" else file.parent)
    file.parent.mkdir(parents=True)
    file.write_text(f"{TOKEN}\n", encoding="utf-8")
    assert sandbox.fetch("model.safetensors").exit_code == 0


def test_a_broken_token_is_not_quoted(sandbox: Sandbox) -> None:
    sandbox.environment["HF_TOKEN"] = f"{TOKEN} and\x01more"
    fetched = sandbox.fetch("config.json")
    assert fetched.exit_code == 1
    assert fetched.last == (
        "`acme/tiny/config.json` can't be fetched: the token has a character that no token has. "
        "Set HF_TOKEN to the token alone, or log in anew: `hf auth login`."
    )
    assert TOKEN not in fetched.stderr


def test_a_gated_model_without_and_with_a_useless_token(sandbox: Sandbox) -> None:
    sandbox.hub.repositories[REPO].gated = "manual"
    assert sandbox.refusal() == (
        "`acme/tiny/model.safetensors` is gated, and this account has no access. Ask for access on "
        "the model's page, then log in (`hf auth login`) or set HF_TOKEN."
    )
    sandbox.hub.tokens["hf_other"] = frozenset()
    sandbox.environment["HF_TOKEN"] = "hf_other"
    assert sandbox.refusal().endswith("with the account of your token.")


def test_a_private_or_unknown_model(sandbox: Sandbox) -> None:
    sandbox.hub.repositories[REPO].private = True
    assert sandbox.refusal() == (
        "`acme/tiny/model.safetensors` isn't there, or is private (401). Check the id; if it is "
        "private, log in (`hf auth login`) or set HF_TOKEN."
    )


@pytest.mark.parametrize(
    ("status", "code", "says"),
    [
        (401, "", "isn't there, or is private (401). Check the id; if it is private, log in"),
        (403, "", "is forbidden to this account (403). Give the token read access"),
        (404, "EntryNotFound", "isn't in commit "),
        (404, "RevisionNotFound", "which the hub doesn't have any more. Lock what it has: "),
        (404, "", "wasn't found on the hub (404). Check HF_ENDPOINT, or lock what the hub has: "),
        (418, "", "was refused by the hub (HTTP status 418). Check HF_ENDPOINT."),
    ],
)
def test_refusals(sandbox: Sandbox, status: int, code: str, says: str) -> None:
    sandbox.hub.misbehave(Status(status, {"X-Error-Code": code} if code else {}))
    assert says in sandbox.refusal()


def test_a_refused_token(sandbox: Sandbox) -> None:
    sandbox.environment["HF_TOKEN"] = "hf_expired"
    sandbox.hub.misbehave(Status(401))
    assert "the hub doesn't accept the token (401). Renew it" in sandbox.refusal()


def test_a_renamed_model_is_still_the_locked_one(sandbox: Sandbox) -> None:
    listener, _, folder = sandbox.start("model.safetensors")
    sandbox.hub.rename(REPO, "acme/renamed")
    with listener:
        process = sandbox.process(folder)
        _, stderr = process.communicate(timeout=300)
    assert process.returncode == 0, stderr
    assert "acme/tiny is 'acme/renamed' on the hub by now; the lock's name still works" in stderr


def test_an_order_is_not_printed_with_its_token() -> None:
    order = FetchOrder(REPO, "main", "0" * 40, {}, {"HF_TOKEN": TOKEN})
    assert TOKEN not in repr(order) and TOKEN not in str(order)
