"""Asks the hub for a lock's entry, in a process that finds the user's token without being given it.

The answer depends on what the hub says now: it is asked anew in each run of Pants, and nothing of
it goes into a cache. `checkpoints/hub_fetch_channel.py` says how the token travels.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Iterable, Tuple

from pants.engine.addresses import Address
from pants.engine.engine_aware import EngineAwareParameter
from pants.engine.env_vars import EnvironmentVars, EnvironmentVarsRequest
from pants.engine.fs import CreateDigest, Digest, DigestContents, FileContent
from pants.engine.process import ProcessCacheScope
from pants.engine.rules import Get, MultiGet, collect_rules, rule
from pants.util.logging import LogLevel

from model_export.checkpoint_ask import CheckpointAsk, LockRequest
from model_export.checkpoint_lock import CheckpointLock, LockedCheckpoint
from model_export.checkpoints.hub_fetch_channel import VARIABLES, FetchOrder, Listener
from model_export.plugin.hub_checkpoints import HUB_RESOLVE
from model_export.plugin.locked_resolves import LockedResolve, LockedResolveRequest
from model_export.plugin.process_sources import ModuleSourcesRequest, ProcessSources
from model_export.plugin.processes import ModuleOutput, ModuleProcess

_MODULE = "model_export.checkpoints.hub_lock"
_REQUEST_FILE = "request.json"
_LOCKED = "locked"
# What the process leaves in that folder.
_LOCK_NAME = "checkpoints.lock.json"
_NOTES_NAME = "notes.txt"


@dataclass(frozen=True)
class HubLockRequest(EngineAwareParameter):
    """A checkpoint to lock, and the first target that asks for it, for errors.

    `run` is another text in each run of Pants. Where Pants (2.17.1) knows a request from an earlier
    run, it starts that one's process again by itself, before the rule that listens to it, and the
    process then finds nobody to ask.
    """

    ask: CheckpointAsk
    run: str
    address: Address = field(compare=False)

    def debug_hint(self) -> str:
        return self.ask.key


@dataclass(frozen=True)
class HubLock:
    """The hub's answer, and what people should know of it."""

    checkpoint: LockedCheckpoint
    notes: Tuple[str, ...]


@rule(desc="Lock a checkpoint of the hub", level=LogLevel.DEBUG)
async def lock_hub_checkpoint(request: HubLockRequest) -> HubLock:
    content = LockRequest((request.ask,), request.run).to_json().encode()
    sources, request_file, environment, _ = await MultiGet(
        Get(ProcessSources, ModuleSourcesRequest(_MODULE)),
        Get(Digest, CreateDigest([FileContent(_REQUEST_FILE, content)])),
        Get(EnvironmentVars, EnvironmentVarsRequest(VARIABLES)),
        Get(LockedResolve, LockedResolveRequest(HUB_RESOLVE, request.address, "model")),
    )
    with Listener(content, FetchOrder("", "", "", {}, dict(environment))):
        output = await Get(
            ModuleOutput,
            ModuleProcess(
                module=_MODULE,
                argv=(_REQUEST_FILE, _LOCKED),
                resolve=HUB_RESOLVE,
                inputs=(sources.digest, request_file),
                outputs=(_LOCKED,),
                description=f"Lock {request.ask.key} ({request.address})",
                address=request.address,
                cache_scope=ProcessCacheScope.PER_SESSION,
            ),
        )
    files = await Get(DigestContents, Digest, output.folders[_LOCKED])
    found = {file.path: file.content for file in files}
    lock = CheckpointLock.from_json(found[_LOCK_NAME], _LOCK_NAME)
    notes = tuple(found[_NOTES_NAME].decode().splitlines())
    return HubLock(lock.checkpoints[request.ask.key], notes)


def rules() -> Iterable[object]:
    return collect_rules()
