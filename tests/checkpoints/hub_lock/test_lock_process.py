"""Locking by the process that a build starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from checkpoints.hub_lock.locking import ASK, TOKEN
from hub.server import Hub
from model_export.checkpoint_ask import CheckpointAsk, LockRequest
from model_export.checkpoint_lock import CheckpointLock
from model_export.checkpoints.hub_fetch_channel import FetchOrder, Listener
from model_export.checkpoints.hub_lock import LOCK_NAME, NOTES_NAME


def test_the_process_is_told_whom_to_ask_through_its_channel(hub: Hub, tmp_path: Path) -> None:
    asks = (CheckpointAsk("acme/private"), CheckpointAsk("acme/gated"))
    result, output = _process(hub, asks, tmp_path)
    assert result.returncode == 0, result.stderr
    text = (output / LOCK_NAME).read_text()
    read = CheckpointLock.from_json(text)
    assert list(read.checkpoints) == ["acme/gated@main", "acme/private@main"]
    assert read.to_json() == text
    assert (output / NOTES_NAME).read_text() == ""
    assert {request.token for request in hub.requests} == {TOKEN}
    for path in tmp_path.rglob("*"):
        assert path.is_dir() or TOKEN.encode() not in path.read_bytes()
    assert TOKEN not in result.stdout + result.stderr


def test_the_process_fails_in_one_line_and_leaves_nothing(hub: Hub, tmp_path: Path) -> None:
    result, output = _process(hub, (ASK, CheckpointAsk("acme/absent")), tmp_path)
    assert result.returncode == 1
    assert result.stderr.splitlines() == [
        "acme/absent@main: there is no such model, or it is private (404). Check the id, and that "
        "the account of your token may read it."
    ]
    assert not output.exists()


def _process(
    hub: Hub, asks: tuple[CheckpointAsk, ...], folder: Path
) -> tuple[subprocess.CompletedProcess[str], Path]:
    content = LockRequest(asks).to_json().encode()
    (folder / "request.json").write_bytes(content)
    environment = {"HF_ENDPOINT": hub.endpoint, "HF_TOKEN": TOKEN, "HOME": str(folder / "home")}
    with Listener(content, FetchOrder("", "", "", {}, environment)):
        result = subprocess.run(
            [sys.executable, "-m", "model_export.checkpoints.hub_lock", "request.json", "locked"],
            cwd=folder,
            env={"PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
            capture_output=True,
            text=True,
            check=False,
        )
    return result, folder / "locked"
