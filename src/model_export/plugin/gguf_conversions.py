"""Turns a GGUF file into the folder of a checkpoint, once for all exports that use it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Iterable

from pants.engine.addresses import Address
from pants.engine.fs import CreateDigest, Digest, DigestEntries
from pants.engine.rules import Get, MultiGet, collect_rules, rule
from pants.util.logging import LogLevel

from model_export.plugin.locked_resolves import LockedResolve, LockedResolveRequest
from model_export.plugin.process_sources import ModuleSourcesRequest, ProcessSources
from model_export.plugin.processes import ModuleOutput, ModuleProcess
from model_export.plugin.subsystem import ModelExport

_GGUF_MODULE = "model_export.checkpoints.gguf"
_CHECKPOINT = "checkpoint"


@dataclass(frozen=True)
class GgufConversionRequest:
    """The file at `path` in `digest`, for the target at `address`."""

    digest: Digest
    path: str
    address: Address = field(compare=False)


@dataclass(frozen=True)
class GgufConversion:
    """The checkpoint that a GGUF file holds, rooted at its folder."""

    digest: Digest


@dataclass(frozen=True)
class OverlaidRequest:
    """A checkpoint with the files of `overlay` added, or in the place of its own."""

    checkpoint: Digest
    overlay: Digest


@dataclass(frozen=True)
class Overlaid:
    digest: Digest


@rule(desc="Turn a GGUF file into a checkpoint", level=LogLevel.DEBUG)
async def convert_gguf(request: GgufConversionRequest, options: ModelExport) -> GgufConversion:
    sources, _ = await MultiGet(
        Get(ProcessSources, ModuleSourcesRequest(_GGUF_MODULE)),
        Get(
            LockedResolve,
            LockedResolveRequest(
                options.checkpoint_resolve, request.address, "[model-export] checkpoint_resolve"
            ),
        ),
    )
    made = await Get(
        ModuleOutput,
        ModuleProcess(
            module=_GGUF_MODULE,
            argv=(request.path, _CHECKPOINT),
            resolve=options.checkpoint_resolve,
            inputs=(sources.digest, request.digest),
            outputs=(_CHECKPOINT,),
            description=(
                f"Turn {os.path.basename(request.path)} into safetensors ({request.address})"
            ),
            address=request.address,
        ),
    )
    return GgufConversion(made.folders[_CHECKPOINT])


@rule(desc="Add files to a checkpoint", level=LogLevel.DEBUG)
async def overlay_files(request: OverlaidRequest) -> Overlaid:
    # By entry and not by glob: a file's name may have what is special in one.
    there, added = await MultiGet(
        Get(DigestEntries, Digest, request.checkpoint),
        Get(DigestEntries, Digest, request.overlay),
    )
    replaced = {entry.path for entry in added}
    kept = [entry for entry in there if entry.path not in replaced]
    return Overlaid(await Get(Digest, CreateDigest([*kept, *added])))


def rules() -> Iterable[object]:
    return collect_rules()
