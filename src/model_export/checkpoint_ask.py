"""The contract from the plugin to the lock process: which checkpoints to lock, and how to choose.

Standard library and Python 3.9 only, because Pants and the process import this module.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Optional, Tuple, Union

from model_export.checkpoint_lock import DEFAULT_REVISION, LockedCheckpoint, lock_key


@dataclass(frozen=True)
class CheckpointAsk:
    """What targets ask of a model id: a revision, and the choice among its files.

    `include` adds files to the choice, `exclude` hides files from it; both are sorted patterns in
    which `*` also matches '/'. `commit` keeps the checkpoint at that one, whatever `revision` is by
    now. With `adapter` it is a LoRA adapter that is asked for, and no model.
    """

    repo: str
    revision: str = DEFAULT_REVISION
    include: Tuple[str, ...] = ()
    exclude: Tuple[str, ...] = ()
    gguf_file: Optional[str] = None
    pickle: bool = False
    remote_code: bool = False
    commit: Optional[str] = None
    adapter: bool = False

    @property
    def key(self) -> str:
        """The name of its entry in the lock."""
        return lock_key(self.repo, self.revision)

    def answered_by(self, locked: LockedCheckpoint) -> bool:
        """Whether an entry of the lock was made for the same question."""
        return (
            self.key == locked.key
            and self.include == locked.include
            and self.exclude == locked.exclude
            and self.gguf_file == locked.gguf_file
            and self.pickle == locked.pickle
            and self.remote_code == locked.remote_code
            and self.adapter == locked.is_adapter
        )


@dataclass(frozen=True)
class LockRequest:
    """All that a lock process is asked, beside the user's variables: which hub, as whom.

    `run` is another text in each run of Pants, so that no answer of an earlier one serves again.
    """

    asks: Tuple[CheckpointAsk, ...]
    run: str = ""

    def to_json(self) -> str:
        """Canonical JSON: one spelling for equal requests."""
        asks = [asdict(ask) for ask in sorted(self.asks, key=lambda ask: ask.key)]
        document = {"asks": asks, "run": self.run}
        return json.dumps(document, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: Union[str, bytes]) -> LockRequest:
        """Read what `to_json` wrote."""
        asks = []
        document = json.loads(text)
        for item in document["asks"]:
            for name in ("include", "exclude"):
                item[name] = tuple(item[name])
            asks.append(CheckpointAsk(**item))
        return cls(tuple(asks), document["run"])
