"""Exports the model of an `export_model` target; nothing has compared the result with it yet."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Iterable

from pants.engine.addresses import Address
from pants.engine.engine_aware import EngineAwareParameter
from pants.engine.fs import EMPTY_DIGEST, AddPrefix, CreateDigest, Digest, FileContent
from pants.engine.process import ProcessResultMetadata
from pants.engine.rules import Get, MultiGet, collect_rules, rule
from pants.engine.target import WrappedTarget, WrappedTargetRequest
from pants.util.logging import LogLevel

from model_export.plugin.adapters import Adapter, AdapterRequest
from model_export.plugin.buildability import Buildability, BuildabilityRequest
from model_export.plugin.calibration_files import calibration_files
from model_export.plugin.checkpoint_folders import CheckpointFolder
from model_export.plugin.checkpoint_lookup import (
    CheckpointAddress,
    CheckpointAddressRequest,
)
from model_export.plugin.delegates import default_resolve
from model_export.plugin.export_settings import ExportSettings, ExportSettingsRequest
from model_export.plugin.field_errors import TargetError
from model_export.plugin.input_files import InputsFile, InputsFileRequest
from model_export.plugin.locked_resolves import LockedResolve, LockedResolveRequest
from model_export.plugin.model_checkpoints import ModelCheckpointRequest
from model_export.plugin.named_files import NamedFiles, NamedFilesRequest
from model_export.plugin.process_sources import ExporterSourcesRequest, ProcessSources
from model_export.plugin.processes import ModuleOutput, ModuleProcess
from model_export.plugin.sample_files import (
    SampleFiles,
    SampleFilesRequest,
    with_sample_paths,
)
from model_export.plugin.target_types import ExportResolveField, ModelField
from model_export.spec import ADAPTER_FOLDER, CALIBRATION_FOLDER, SAMPLES_FOLDER, ExportRequest

_EXPORTER_MODULE = "model_export.exporter"
_REQUEST_FILE = "request.json"
_CHECKPOINT = "checkpoint"
_ARTIFACT = "artifact"
_PROBE = "probe"


@dataclass(frozen=True)
class ExportedModelRequest(EngineAwareParameter):
    """The export of the `export_model` target at `address`."""

    address: Address

    def debug_hint(self) -> str:
        return self.address.spec


@dataclass(frozen=True)
class ExportedModel:
    """An artifact that isn't verified, and the probe to verify it with, each rooted at its folder.

    `resolve` is the one that it was exported in.
    """

    artifact: Digest
    probe: Digest
    export_format: str
    resolve: str
    metadata: ProcessResultMetadata = field(compare=False)


@rule(desc="Export a model", level=LogLevel.DEBUG)
async def export_model(request: ExportedModelRequest) -> ExportedModel:
    address = request.address
    wrapped, buildable = await MultiGet(
        Get(WrappedTarget, WrappedTargetRequest(address, "an export")),
        Get(Buildability, BuildabilityRequest(address)),
    )
    if buildable.obstacle is not None:
        raise TargetError(address, buildable.obstacle)
    settings = await Get(ExportSettings, ExportSettingsRequest(address))
    target, spec = wrapped.target, settings.spec
    resolve = target[ExportResolveField].value or default_resolve(spec)
    # What a glance at the repository can refuse comes before anything is installed.
    lock, _ = await MultiGet(
        Get(LockedResolve, LockedResolveRequest(resolve, address)),
        Get(CheckpointAddress, CheckpointAddressRequest(target[ModelField].value, address)),
    )
    adapter = await Get(Adapter, AdapterRequest(address))
    adapter_files, adapter_origin = EMPTY_DIGEST, None
    if adapter.folder is not None:
        adapter_files = await Get(Digest, AddPrefix(adapter.folder.digest, ADAPTER_FOLDER))
        adapter_origin = adapter.folder.origin
    calibration = EMPTY_DIGEST
    if spec.calibration is not None:
        files = await Get(
            NamedFiles, NamedFilesRequest, calibration_files(spec.calibration, address)
        )
        spec = replace(spec, calibration={**spec.calibration, "files": list(files.paths)})
        calibration = await Get(Digest, AddPrefix(files.digest, CALIBRATION_FOLDER))
    samples = EMPTY_DIGEST
    named = SampleFilesRequest.of(spec.sample_inputs or {}, address)
    if named.files:
        found = await Get(SampleFiles, SampleFilesRequest, named)
        spec = replace(spec, sample_inputs=with_sample_paths(spec, found.paths))
        samples = await Get(Digest, AddPrefix(found.digest, SAMPLES_FOLDER))
    inputs, source_roots = EMPTY_DIGEST, ()
    if spec.inputs_from is not None:
        file = await Get(InputsFile, InputsFileRequest(spec.inputs_from, resolve, address))
        spec = replace(spec, inputs_from=file.path)
        inputs, source_roots = file.digest, file.source_roots
    sources = await Get(ProcessSources, ExporterSourcesRequest(spec.export_format))
    checkpoint = await Get(CheckpointFolder, ModelCheckpointRequest(address))
    export = ExportRequest(spec, checkpoint.origin, lock.toolchain, adapter_origin)
    request_file, checkpoint_files = await MultiGet(
        Get(Digest, CreateDigest([FileContent(_REQUEST_FILE, export.to_json().encode())])),
        Get(Digest, AddPrefix(checkpoint.digest, _CHECKPOINT)),
    )
    output = await Get(
        ModuleOutput,
        ModuleProcess(
            module=_EXPORTER_MODULE,
            argv=(_REQUEST_FILE, _CHECKPOINT, _ARTIFACT, _PROBE, *source_roots),
            resolve=resolve,
            inputs=(
                sources.digest,
                request_file,
                checkpoint_files,
                adapter_files,
                calibration,
                samples,
                inputs,
            ),
            outputs=(_ARTIFACT, _PROBE),
            description=(
                f"Export {checkpoint.origin.identity} to {spec.export_format} ({address})"
            ),
            address=address,
        ),
    )
    return ExportedModel(
        output.folders[_ARTIFACT],
        output.folders[_PROBE],
        spec.export_format,
        resolve,
        output.metadata,
    )


def rules() -> Iterable[object]:
    return collect_rules()
