"""Compares the export of an `export_model` target with its model, in a process of its own."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Iterable, Optional, Tuple

from pants.core.goals.test import TestSubsystem
from pants.engine.addresses import Address
from pants.engine.engine_aware import EngineAwareParameter
from pants.engine.fs import (
    AddPrefix,
    CreateDigest,
    Digest,
    DigestContents,
    FileContent,
)
from pants.engine.process import ProcessCacheScope, ProcessResultMetadata
from pants.engine.rules import Get, MultiGet, collect_rules, rule
from pants.engine.target import WrappedTarget, WrappedTargetRequest
from pants.util.frozendict import FrozenDict
from pants.util.logging import LogLevel

from model_export.plugin.exports import ExportedModel, ExportedModelRequest
from model_export.plugin.process_sources import (
    ModuleSourcesRequest,
    ProcessSources,
    verifier_modules,
)
from model_export.plugin.processes import ModuleOutput, ModuleProcess
from model_export.plugin.verification_checks import check_tolerance
from model_export.plugin.verification_fields import ToleranceField, VerificationTimeoutField

REPORT_JSON = "report.json"
REPORT_TEXT = "report.txt"
REPORT_JUNIT = "junit.xml"

_VERIFIER_MODULE = "model_export.verifier"
_REQUEST_FILE = "request.json"
_ARTIFACT = "artifact"
_PROBE = "probe"
_REPORT = "report"


@dataclass(frozen=True)
class VerificationRequest(EngineAwareParameter):
    """The verification of the `export_model` target at `address`.

    With `force` it runs again whatever a cache has; the export before it doesn't.
    """

    address: Address
    force: bool = False

    def debug_hint(self) -> str:
        return self.address.spec


@dataclass(frozen=True)
class Verification:
    """What the verifier said.

    `failure` is the line that says what is wrong, None where the artifact passed; `unexecuted` the
    line that says why nothing was computed, None where it was; `tolerance` the bounds that the
    artifact was held to; `report` holds `report.json`, `report.txt` and `junit.xml`.
    """

    failure: Optional[str]
    unexecuted: Optional[str]
    tolerance: FrozenDict[str, float]
    report: Digest
    metadata: ProcessResultMetadata = field(compare=False)


class ReportError(Exception):
    """A report that isn't what the plugin expects of the verifier."""

    def __init__(self, address: Address, problem: str) -> None:
        super().__init__(f"{address}: The verifier's {problem}: plugin and verifier must match.")


@rule(desc="Verify an artifact", level=LogLevel.DEBUG)
async def verify(request: VerificationRequest, test: TestSubsystem) -> Verification:
    address = request.address
    exported, wrapped = await MultiGet(
        Get(ExportedModel, ExportedModelRequest(address)),
        Get(WrappedTarget, WrappedTargetRequest(address, "a verification")),
    )
    target = wrapped.target
    tolerance = check_tolerance(target[ToleranceField].value or {})
    content = json.dumps({"tolerance": tolerance}, sort_keys=True).encode()
    sources, request_file, artifact, probe = await MultiGet(
        Get(
            ProcessSources,
            ModuleSourcesRequest(
                f"{_VERIFIER_MODULE}.__main__", verifier_modules(exported.export_format)
            ),
        ),
        Get(Digest, CreateDigest([FileContent(_REQUEST_FILE, content)])),
        Get(Digest, AddPrefix(exported.artifact, _ARTIFACT)),
        Get(Digest, AddPrefix(exported.probe, _PROBE)),
    )
    output = await Get(
        ModuleOutput,
        ModuleProcess(
            module=_VERIFIER_MODULE,
            argv=(_REQUEST_FILE, _ARTIFACT, _PROBE, _REPORT),
            resolve=exported.resolve,
            inputs=(sources.digest, request_file, artifact, probe),
            outputs=(_REPORT,),
            description=f"Verify {address}",
            address=address,
            timeout_seconds=target[VerificationTimeoutField].calculate_from_global_options(test),
            cache_scope=(
                ProcessCacheScope.PER_SESSION if request.force else ProcessCacheScope.SUCCESSFUL
            ),
        ),
    )
    report = output.folders[_REPORT]
    contents = await Get(DigestContents, Digest, report)
    files = {file.path: file.content for file in contents}
    for name in (REPORT_JSON, REPORT_TEXT, REPORT_JUNIT):
        if name not in files:
            raise ReportError(address, f"report lacks {name}")
    failure, unexecuted, bounds = _read_verdict(address, files[REPORT_JSON])
    return Verification(failure, unexecuted, bounds, report, output.metadata)


def _read_verdict(
    address: Address, content: bytes
) -> Tuple[Optional[str], Optional[str], FrozenDict[str, float]]:
    try:
        document = json.loads(content)
        passed, failure = document["passed"], document["failure"]
        unexecuted = document["unexecuted"]
        bounds = FrozenDict(
            {str(key): float(bound) for key, bound in document["tolerance"].items()}
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ReportError(address, f"{REPORT_JSON} can't be read ({error!r})") from error
    if passed is True and failure is None:
        return None, unexecuted, bounds
    if passed is False and failure:
        return str(failure), unexecuted, bounds
    raise ReportError(address, f"{REPORT_JSON} says passed={passed!r} and failure={failure!r}")


def rules() -> Iterable[object]:
    return collect_rules()
