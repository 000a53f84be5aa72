"""Builds the artifact of an `export_model` target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterable

from pants.engine.addresses import Address
from pants.engine.engine_aware import EngineAwareParameter
from pants.engine.fs import AddPrefix, CreateDigest, Digest, FileContent
from pants.engine.rules import Get, MultiGet, collect_rules, rule
from pants.engine.target import WrappedTarget, WrappedTargetRequest
from pants.util.logging import LogLevel

from model_export.plugin.checkpoint_folders import CheckpointFolder, CheckpointRequest
from model_export.plugin.checkpoint_lookup import (
    CheckpointAddress,
    CheckpointAddressRequest,
    unlocked_hub_id,
)
from model_export.plugin.export_spec import export_spec
from model_export.plugin.locked_resolves import LockedResolve, LockedResolveRequest
from model_export.plugin.process_sources import ExporterSourcesRequest, ProcessSources
from model_export.plugin.processes import ModuleOutput, ModuleProcess
from model_export.plugin.target_types import ExportResolveField, ModelField
from model_export.spec import ExportRequest

_EXPORTER_MODULE = "model_export.exporter"
_REQUEST_FILE = "request.json"
_CHECKPOINT = "checkpoint"
_ARTIFACT = "artifact"


@dataclass(frozen=True)
class ArtifactRequest(EngineAwareParameter):
    """The artifact of the `export_model` target at `address`."""

    address: Address

    def debug_hint(self) -> str:
        return self.address.spec


@dataclass(frozen=True)
class Artifact:
    """An artifact's files, rooted at its folder."""

    digest: Digest


@rule(desc="Export a model", level=LogLevel.DEBUG)
async def build_artifact(request: ArtifactRequest) -> Artifact:
    address = request.address
    wrapped = await Get(WrappedTarget, WrappedTargetRequest(address, "an export"))
    target = wrapped.target
    spec = export_spec(target)
    resolve = target[ExportResolveField].value or spec.export_format
    model = target[ModelField].value
    # What a glance at the repository can refuse comes before anything is installed.
    lock, checkpoint_address = await MultiGet(
        Get(LockedResolve, LockedResolveRequest(resolve, address)),
        Get(CheckpointAddress, CheckpointAddressRequest(model, address)),
    )
    if checkpoint_address.address is None:
        raise unlocked_hub_id(model, address)
    checkpoint, sources = await MultiGet(
        Get(CheckpointFolder, CheckpointRequest(checkpoint_address.address)),
        Get(ProcessSources, ExporterSourcesRequest(spec.export_format)),
    )
    export = ExportRequest(spec, checkpoint.origin, lock.toolchain)
    request_file, checkpoint_files = await MultiGet(
        Get(Digest, CreateDigest([FileContent(_REQUEST_FILE, export.to_json().encode())])),
        Get(Digest, AddPrefix(checkpoint.digest, _CHECKPOINT)),
    )
    output = await Get(
        ModuleOutput,
        ModuleProcess(
            module=_EXPORTER_MODULE,
            argv=(_REQUEST_FILE, _CHECKPOINT, _ARTIFACT),
            resolve=resolve,
            inputs=(sources.digest, request_file, checkpoint_files),
            output=_ARTIFACT,
            description=(
                f"Export {checkpoint.origin.identity} to {spec.export_format} ({address})"
            ),
            address=address,
        ),
    )
    return Artifact(output.digest)


def rules() -> Iterable[object]:
    return collect_rules()
