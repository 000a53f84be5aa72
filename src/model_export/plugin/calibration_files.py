"""From `calibration["files"]` to the files themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterable, Tuple

from pants.core.target_types import FileSourceField
from pants.core.util_rules import source_files
from pants.core.util_rules.source_files import SourceFiles, SourceFilesRequest
from pants.engine.addresses import Address, Addresses, UnparsedAddressInputs
from pants.engine.fs import Digest
from pants.engine.rules import Get, collect_rules, rule
from pants.engine.target import (
    FieldSet,
    InferDependenciesRequest,
    InferredDependencies,
    SourcesField,
    Targets,
)
from pants.engine.unions import UnionRule
from pants.util.logging import LogLevel

from model_export.plugin.field_errors import SpecError, TargetError
from model_export.plugin.quantizer_fields import CalibrationField
from model_export.plugin.target_types import ExportDependenciesField
from model_export.spec import MEDIA_SUFFIXES

_FIELD = "calibration['files']"
_MEDIA = tuple(suffix for suffixes in MEDIA_SUFFIXES.values() for suffix in suffixes)


@dataclass(frozen=True)
class CalibrationFilesRequest:
    """The addresses that the target at `owner` names."""

    files: Tuple[str, ...]
    owner: Address


@dataclass(frozen=True)
class CalibrationFiles:
    """The files, at their paths in the repository."""

    digest: Digest
    paths: Tuple[str, ...]


@rule(desc="Read calibration samples", level=LogLevel.DEBUG)
async def calibration_files(request: CalibrationFilesRequest) -> CalibrationFiles:
    addresses = await Get(Addresses, UnparsedAddressInputs, _addresses(request))
    targets = await Get(Targets, Addresses, addresses)
    for target in targets:
        if not target.has_field(FileSourceField):
            raise TargetError(
                request.owner,
                SpecError(
                    _FIELD,
                    f"name {target.address}, a `{target.alias}` target",
                    "Name a `file` or a `files` target",
                ),
            )
    sources = await Get(
        SourceFiles, SourceFilesRequest([target.get(SourcesField) for target in targets])
    )
    paths = tuple(sorted(sources.snapshot.files))
    for path in paths:
        if not path.endswith(".jsonl") and not path.lower().endswith(_MEDIA):
            raise TargetError(
                request.owner,
                SpecError(
                    _FIELD,
                    f"hold {path}",
                    'Name files of JSON lines ("x.jsonl"), images and sound '
                    f"({', '.join(_MEDIA)}) only",
                ),
            )
    return CalibrationFiles(sources.snapshot.digest, paths)


def _addresses(request: CalibrationFilesRequest) -> UnparsedAddressInputs:
    return UnparsedAddressInputs(
        request.files,
        owning_address=request.owner,
        description_of_origin=f"the `calibration` field of {request.owner}",
    )


@dataclass(frozen=True)
class CalibrationFieldSet(FieldSet):
    required_fields = (CalibrationField, ExportDependenciesField)

    calibration: CalibrationField


class InferCalibration(InferDependenciesRequest):
    infer_from = CalibrationFieldSet


@rule(desc="Infer the calibration samples of an export", level=LogLevel.DEBUG)
async def infer_calibration(request: InferCalibration) -> InferredDependencies:
    fields = request.field_set
    if fields.calibration.value is None:
        return InferredDependencies([])
    files = CalibrationFilesRequest(tuple(fields.calibration.value["files"]), fields.address)
    return InferredDependencies(await Get(Addresses, UnparsedAddressInputs, _addresses(files)))


def rules() -> Iterable[object]:
    return [
        *collect_rules(),
        *source_files.rules(),
        UnionRule(InferDependenciesRequest, InferCalibration),
    ]
