"""The hub that the tests of this folder fetch from, and the sandbox that they fetch in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from checkpoints.hub_fetch.sandbox import CONFIG, REPO, TOKEN, WEIGHTS, Sandbox
from hub.repositories import HubRepository
from hub.server import Hub


@pytest.fixture
def hub() -> Iterator[Hub]:
    repository = HubRepository(REPO, {"model.safetensors": WEIGHTS, "config.json": CONFIG})
    with Hub([repository], tokens={TOKEN: [REPO]}) as hub:
        yield hub


@pytest.fixture
def sandbox(hub: Hub, tmp_path: Path) -> Sandbox:
    home = tmp_path / "home"
    home.mkdir()
    return Sandbox(hub, home, tmp_path)
