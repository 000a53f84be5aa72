"""Makes the folder of a hub checkpoint: exactly the bytes that the lock pins, fetched by processes.

The token and all else that is the user's reaches a fetch process through a socket and nothing else
(`checkpoints/hub_fetch_channel.py` says why); the cache key of a fetch is the content. So a fetch
is shared by all targets, commits and users that want the same bytes.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Callable, Iterable, List, Tuple

from pants.engine.addresses import Address
from pants.engine.engine_aware import EngineAwareParameter
from pants.engine.env_vars import EnvironmentVars, EnvironmentVarsRequest
from pants.engine.fs import (
    CreateDigest,
    Digest,
    DigestContents,
    DigestEntries,
    FileContent,
    FileDigest,
    FileEntry,
    MergeDigests,
    PathGlobs,
    Snapshot,
)
from pants.engine.internals.native_engine import PyThreadLocals
from pants.engine.rules import Get, MultiGet, collect_rules, rule
from pants.util.frozendict import FrozenDict
from pants.util.logging import LogLevel

from model_export.checkpoint_ask import CheckpointAsk
from model_export.checkpoint_lock import (
    LOCK_FILE,
    CheckpointLock,
    CheckpointLockError,
    LockedCheckpoint,
    LockedFile,
)
from model_export.checkpoints.hub_fetch_channel import VARIABLES, FetchOrder, Listener
from model_export.checkpoints.hub_fetch_request import (
    LARGE_BYTES,
    PARTIAL_CACHE,
    PARTIAL_FOLDER,
    Content,
    FetchRequest,
    shown_size,
)
from model_export.plugin.checkpoint_files import check_files
from model_export.plugin.checkpoint_folders import CheckpointFolder
from model_export.plugin.checkpoint_lookup import outdated_hub_id, unlocked_hub_id
from model_export.plugin.field_errors import SpecError, TargetError
from model_export.plugin.gguf_conversions import (
    GgufConversion,
    GgufConversionRequest,
    Overlaid,
    OverlaidRequest,
)
from model_export.plugin.locked_resolves import LockedResolve, LockedResolveRequest
from model_export.plugin.process_sources import ModuleSourcesRequest, ProcessSources
from model_export.plugin.processes import ModuleOutput, ModuleProcess
from model_export.spec import CheckpointOrigin

logger = logging.getLogger(__name__)

HUB_RESOLVE = "hub"
_MODULE = "model_export.checkpoints.hub_fetch"
_REQUEST_FILE = "request.json"
_FETCHED = "fetched"


class FetchedWrongBytes(Exception):
    """A fetch whose output isn't what the lock pins, which the fetch process should have seen."""

    def __init__(self, address: Address, repo: str, sha256: str) -> None:
        super().__init__(
            f"{address}: `model` {repo}: what was fetched as sha256 {sha256} has other bytes. A "
            "cache gave the wrong result, or the file changed under the fetch: build again with "
            "--no-local-cache."
        )


@dataclass(frozen=True)
class HubCheckpointRequest(EngineAwareParameter):
    """The checkpoint that the target at `address` asks of the hub."""

    ask: CheckpointAsk
    address: Address

    def debug_hint(self) -> str:
        return self.ask.key


@dataclass(frozen=True)
class HubFilesRequest(EngineAwareParameter):
    """Some files of a locked checkpoint, to be fetched by one process.

    The address is the first target's that asked, for errors.
    """

    checkpoint: LockedCheckpoint
    files: Tuple[LockedFile, ...]
    address: Address = field(compare=False)

    def debug_hint(self) -> str:
        return f"{self.checkpoint.key}, {len(self.files)} files"


@dataclass(frozen=True)
class HubFiles:
    """Fetched files under their paths in the repository."""

    digest: Digest


@rule(desc="Make a checkpoint of hub files", level=LogLevel.DEBUG)
async def hub_checkpoint(request: HubCheckpointRequest) -> CheckpointFolder:
    address, field = request.address, _field(request.ask)
    contents = await Get(DigestContents, PathGlobs([LOCK_FILE]))
    try:
        lock = CheckpointLock.from_json(contents[0].content) if contents else CheckpointLock({})
        locked = locked_checkpoint(lock, request.ask, address)
    except CheckpointLockError as error:
        raise TargetError(
            address,
            SpecError(field, f"can't be looked up: {error.where}: {error.problem}", error.remedy),
        ) from error
    fetched = await MultiGet(
        Get(HubFiles, HubFilesRequest(locked, files, address))
        for files in fetch_groups(locked.files)
    )
    digest = await Get(Digest, MergeDigests(files.digest for files in fetched))
    if locked.gguf_file is not None:
        entries = await Get(DigestEntries, Digest, digest)
        gguf, others = await MultiGet(
            Get(Digest, CreateDigest([e for e in entries if e.path == locked.gguf_file])),
            Get(Digest, CreateDigest([e for e in entries if e.path != locked.gguf_file])),
        )
        made = await Get(GgufConversion, GgufConversionRequest(gguf, locked.gguf_file, address))
        overlaid = await Get(Overlaid, OverlaidRequest(made.digest, others))
        digest = overlaid.digest
    snapshot = await Get(Snapshot, Digest, digest)
    try:
        check_files(field, snapshot.files, locked.pickle, request.ask.adapter)
    except SpecError as error:
        raise TargetError(address, error) from error
    identity = f"{locked.repo}@{locked.commit}"
    return CheckpointFolder(
        digest, CheckpointOrigin("hub", identity, locked.pickle, locked.remote_code)
    )


def locked_checkpoint(lock: CheckpointLock, ask: CheckpointAsk, owner: Address) -> LockedCheckpoint:
    """The entry of the lock that answers `ask`. Raises TargetError."""
    field = _field(ask)
    locked = lock.checkpoints.get(ask.key)
    if locked is None:
        raise unlocked_hub_id(ask.repo, owner, field)
    if not ask.answered_by(locked):
        raise outdated_hub_id(locked, owner, field)
    if ask.gguf_file is not None:
        parts = [file.path for file in locked.files if file.path.endswith(".gguf")]
        if len(parts) > 1:
            raise TargetError(
                owner,
                SpecError(
                    "gguf_file",
                    f"is {ask.gguf_file!r}, one of {len(parts)} GGUF files, and only a whole one "
                    "can be converted",
                    "Name a GGUF file that isn't in parts, and include no other",
                ),
            )
    return locked


def _field(ask: CheckpointAsk) -> str:
    """The field of the target that asks."""
    return "adapter" if ask.adapter else "model"


def fetch_groups(files: Tuple[LockedFile, ...]) -> List[Tuple[LockedFile, ...]]:
    """The files of each fetch process: every large file alone, the small ones together."""
    large = [file for file in files if file.size > LARGE_BYTES]
    small = tuple(file for file in files if file.size <= LARGE_BYTES)
    groups: List[Tuple[LockedFile, ...]] = [(file,) for file in large]
    return [*groups, small] if small else groups


@rule(desc="Fetch files from the hub", level=LogLevel.DEBUG)
async def hub_files(request: HubFilesRequest) -> HubFiles:
    checkpoint = request.checkpoint
    contents = tuple(Content(file.sha256, file.size) for file in request.files)
    content = FetchRequest(contents).to_json().encode()
    sources, request_file, environment, _ = await MultiGet(
        Get(ProcessSources, ModuleSourcesRequest(_MODULE)),
        Get(Digest, CreateDigest([FileContent(_REQUEST_FILE, content)])),
        Get(EnvironmentVars, EnvironmentVarsRequest(VARIABLES)),
        Get(LockedResolve, LockedResolveRequest(HUB_RESOLVE, request.address, "model")),
    )
    order = FetchOrder(
        checkpoint.repo,
        checkpoint.revision,
        checkpoint.commit,
        {file.sha256: file.path for file in request.files},
        dict(environment),
    )
    with Listener(content, order, _report()):
        output = await Get(
            ModuleOutput,
            ModuleProcess(
                module=_MODULE,
                argv=(_REQUEST_FILE, _FETCHED),
                resolve=HUB_RESOLVE,
                inputs=(sources.digest, request_file),
                outputs=(_FETCHED,),
                description=_description(request),
                address=request.address,
                caches=FrozenDict({PARTIAL_CACHE: PARTIAL_FOLDER}),
            ),
        )
    entries = await Get(DigestEntries, Digest, output.folders[_FETCHED])
    # Pants names a file by its sha256, so this compares the bytes that a build will read.
    found = {entry.path: entry.file_digest for entry in entries if isinstance(entry, FileEntry)}
    for file in request.files:
        if found.get(file.sha256) != FileDigest(file.sha256, file.size):
            raise FetchedWrongBytes(request.address, checkpoint.repo, file.sha256)
    named = [FileEntry(file.path, found[file.sha256]) for file in request.files]
    return HubFiles(await Get(Digest, CreateDigest(named)))


def _description(request: HubFilesRequest) -> str:
    files = request.files
    size = shown_size(sum(file.size for file in files))
    what = files[0].path if len(files) == 1 else f"{len(files)} files"
    return f"Fetch {what} ({size}) of {request.checkpoint.repo} ({request.address})"


def _report() -> Callable[[str], None]:
    """Log the progress of a fetch where the person who waits for it sees it.

    Pants binds its log to threads (2.17.1): one that it didn't start logs to the daemon's file.
    """
    here = PyThreadLocals.get_for_current_thread()

    def report(line: str) -> None:
        here.set_for_current_thread()
        logger.info(line)

    return report


def rules() -> Iterable[object]:
    return collect_rules()
