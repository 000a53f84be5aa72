"""Locks checkpoints of the hub: `python -m model_export.checkpoints.hub_lock REQUEST OUTPUT`.

REQUEST is the JSON of a `LockRequest`. OUTPUT is a folder that gets `checkpoints.lock.json`, a lock
with an entry for each ask and no other, and `notes.txt`, lines for people. Which hub, and as whom,
the Pants that starts this tells it through a socket (`hub_fetch_channel`).

Ends with exit code 1 and one line on stderr if a checkpoint can't be locked; OUTPUT then isn't
there.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from model_export.checkpoint_ask import LockRequest
from model_export.checkpoint_lock import CheckpointLock
from model_export.checkpoints.hub_fetch_channel import ChannelError, ask
from model_export.checkpoints.hub_lock_errors import HubLockError

LOCK_NAME = "checkpoints.lock.json"
NOTES_NAME = "notes.txt"


def main(arguments: list[str]) -> int:
    """The process; returns its exit code."""
    if len(arguments) != 2:
        print("usage: python -m model_export.checkpoints.hub_lock REQUEST OUTPUT", file=sys.stderr)
        return 2
    content, output = Path(arguments[0]).read_bytes(), Path(arguments[1])
    try:
        channel = ask(content)
        # huggingface_hub reads the environment as it is imported.
        os.environ.update(channel.order.environment)
        os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
        lock(LockRequest.from_json(content), output)
    except (ChannelError, HubLockError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def lock(request: LockRequest, output: Path) -> None:
    """Ask the hub about each checkpoint, and write the answers into `output`, a new folder.

    Raises HubLockError.
    """
    from model_export.checkpoints.hub_lock_client import HubClient
    from model_export.checkpoints.hub_lock_entry import lock_checkpoint

    client = HubClient()
    locked = [lock_checkpoint(asked, client) for asked in request.asks]
    output.mkdir(parents=True)
    document = CheckpointLock({entry.key: entry for entry, _ in locked}).to_json()
    (output / LOCK_NAME).write_text(document, encoding="utf-8")
    notes = "".join(f"{note}\n" for _, note in locked if note is not None)
    (output / NOTES_NAME).write_text(notes, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
