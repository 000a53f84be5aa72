"""The hub that the tests of this folder lock checkpoints of, and a client that needn't wait."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants

from checkpoints.hub_lock.locking import ASK, FILES, TINY, TOKEN, Lock
from hub.repositories import HubRepository
from hub.server import Hub
from model_export.checkpoint_lock import LockedCheckpoint
from model_export.checkpoints import hub_lock_client
from model_export.checkpoints.hub_lock_client import HubClient
from model_export.checkpoints.hub_lock_entry import lock_checkpoint


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


@pytest.fixture
def lock(hub: Hub, waits: list[float]) -> Lock:
    def lock_it(endpoint: str = hub.endpoint, **changes: Any) -> LockedCheckpoint:
        return lock_checkpoint(replace(ASK, **changes), HubClient(endpoint, waits.append))[0]

    return lock_it
