"""`test` for `export_model`: what verification saw, as a test."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, Iterable

from pants.core.goals.test import TestFieldSet, TestRequest, TestResult, TestSubsystem
from pants.core.util_rules.environments import EnvironmentField
from pants.engine.addresses import Address
from pants.engine.fs import (
    EMPTY_FILE_DIGEST,
    CreateDigest,
    Digest,
    DigestContents,
    DigestEntries,
    FileContent,
    FileEntry,
    Snapshot,
)
from pants.engine.rules import Get, MultiGet, collect_rules, rule
from pants.engine.target import Target
from pants.util.logging import LogLevel

from model_export.plugin.buildability import Buildability, BuildabilityRequest
from model_export.plugin.field_errors import TargetError
from model_export.plugin.junit import crashed, named_after, skipped
from model_export.plugin.named_targets import TargetsNamed, TargetsNamedRequest, is_named
from model_export.plugin.processes import ProcessFailed
from model_export.plugin.subsystem import ModelExportTest
from model_export.plugin.target_types import (
    ArtifactSourcesField,
    ConfigField,
    ModelField,
)
from model_export.plugin.verification_fields import SkipTestsField, SkipVerifyField
from model_export.plugin.verifications import (
    REPORT_JUNIT,
    REPORT_TEXT,
    Verification,
    VerificationRequest,
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ArtifactTestFieldSet(TestFieldSet):
    required_fields = (ArtifactSourcesField, ModelField, ConfigField)

    sources: ArtifactSourcesField
    skip_verify: SkipVerifyField
    # Pants reads the environment from the field set: without it `environment=` has no effect.
    environment: EnvironmentField

    @classmethod
    def opt_out(cls, tgt: Target) -> bool:
        return bool(tgt[SkipTestsField].value)


class ArtifactTestRequest(TestRequest):
    tool_subsystem = ModelExportTest
    field_set_type = ArtifactTestFieldSet


async def _junit(address: Address, report: bytes) -> Snapshot:
    """A report as the file that `[test].report` writes."""
    file = FileContent(f"{address.path_safe_spec}.xml", report)
    return await Get(Snapshot, CreateDigest([file]))


async def _left_out(address: Address, reason: str, test: TestSubsystem) -> TestResult:
    """No exit code: a test that found nothing to run, in the words of Pants."""
    return TestResult(
        exit_code=None,
        stdout="",
        stdout_digest=EMPTY_FILE_DIGEST,
        stderr="",
        stderr_digest=EMPTY_FILE_DIGEST,
        addresses=(address,),
        output_setting=test.output,
        result_metadata=None,
        xml_results=await _junit(address, skipped(address.spec, reason)),
    )


@rule(desc="Test an artifact", level=LogLevel.DEBUG)
async def test_artifact(
    batch: ArtifactTestRequest.Batch[ArtifactTestFieldSet, Any],  # type: ignore[name-defined]
    test: TestSubsystem,
) -> TestResult:
    field_set = batch.single_element
    address = field_set.address
    # This rule runs in each session, so that a line is there with a warm daemon too.
    if field_set.skip_verify.value:
        logger.warning(f"{address}: not verified, because it has `skip_verify=True`.")
        return await _left_out(address, "skip_verify=True", test)
    named = await Get(TargetsNamed, TargetsNamedRequest())
    try:
        if not is_named(named.specs, address):
            buildable = await Get(Buildability, BuildabilityRequest(address))
            if buildable.obstacle is not None:
                logger.warning(f"{address}: left out: {buildable.obstacle}")
                return await _left_out(address, str(buildable.obstacle), test)
        verification = await Get(Verification, VerificationRequest(address, force=test.force))
    # A model that can't be exported, or crashes its runtime, ends its own test and no other.
    except (ProcessFailed, TargetError) as error:
        return TestResult(
            exit_code=1,
            stdout="",
            stdout_digest=EMPTY_FILE_DIGEST,
            stderr=str(error),
            stderr_digest=EMPTY_FILE_DIGEST,
            addresses=(address,),
            output_setting=test.output,
            result_metadata=error.metadata if isinstance(error, ProcessFailed) else None,
            xml_results=await _junit(address, crashed(address.spec, str(error))),
        )
    contents, entries, extra_output = await MultiGet(
        Get(DigestContents, Digest, verification.report),
        Get(DigestEntries, Digest, verification.report),
        Get(Snapshot, Digest, verification.report),
    )
    files = {file.path: file.content for file in contents}
    digests = {entry.path: entry.file_digest for entry in entries if isinstance(entry, FileEntry)}
    failed = verification.failure is not None
    if verification.unexecuted is not None:
        logger.warning(f"{address}: {verification.unexecuted}.")
    return TestResult(
        exit_code=1 if failed else 0,
        stdout=files[REPORT_TEXT].decode(errors="replace"),
        stdout_digest=digests[REPORT_TEXT],
        stderr=f"{address}: {verification.failure}" if failed else "",
        stderr_digest=EMPTY_FILE_DIGEST,
        addresses=(address,),
        output_setting=test.output,
        result_metadata=verification.metadata,
        xml_results=await _junit(address, named_after(address.spec, files[REPORT_JUNIT])),
        extra_output=extra_output,
        log_extra_output=failed,
    )


def rules() -> Iterable[object]:
    return [*collect_rules(), *ArtifactTestRequest.rules()]
