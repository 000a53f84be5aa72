"""The files that `calibration["files"]` names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Iterable, Mapping

from pants.engine.addresses import Address, Addresses, UnparsedAddressInputs
from pants.engine.rules import Get, collect_rules, rule
from pants.engine.target import FieldSet, InferDependenciesRequest, InferredDependencies
from pants.engine.unions import UnionRule
from pants.util.logging import LogLevel

from model_export.plugin.named_files import NamedFilesRequest
from model_export.plugin.quantizer_fields import CalibrationField
from model_export.plugin.target_types import ExportDependenciesField
from model_export.spec import LINES_SUFFIX, MEDIA_SUFFIXES

_FIELD = "calibration['files']"
_SUFFIXES = (LINES_SUFFIX, *(name for names in MEDIA_SUFFIXES.values() for name in names))


def calibration_files(calibration: Mapping[str, Any], owner: Address) -> NamedFilesRequest:
    """The files of a `calibration` of the target at `owner`: lines, and images and sound."""
    return NamedFilesRequest(tuple(calibration["files"]), _FIELD, _SUFFIXES, owner)


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
    files = calibration_files(fields.calibration.value, fields.address)
    return InferredDependencies(await Get(Addresses, UnparsedAddressInputs, files.unparsed()))


def rules() -> Iterable[object]:
    return [*collect_rules(), UnionRule(InferDependenciesRequest, InferCalibration)]
