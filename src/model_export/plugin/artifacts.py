"""The artifact of an `export_model` target: what was exported, once verification has passed it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Iterable

from pants.engine.addresses import Address
from pants.engine.engine_aware import EngineAwareParameter
from pants.engine.fs import (
    CreateDigest,
    Digest,
    DigestContents,
    DigestEntries,
    DigestSubset,
    FileContent,
    PathGlobs,
)
from pants.engine.rules import Get, MultiGet, collect_rules, rule
from pants.engine.target import WrappedTarget, WrappedTargetRequest
from pants.util.frozendict import FrozenDict
from pants.util.logging import LogLevel

from model_export.manifest import MANIFEST_FILE, Manifest, RecipeRecord, VerificationRecord
from model_export.plugin.export_settings import ExportSettings, ExportSettingsRequest
from model_export.plugin.exports import ExportedModel, ExportedModelRequest
from model_export.plugin.verification_fields import SkipVerifyField
from model_export.plugin.verifications import Verification, VerificationRequest


@dataclass(frozen=True)
class ArtifactRequest(EngineAwareParameter):
    """The artifact of the `export_model` target at `address`."""

    address: Address

    def debug_hint(self) -> str:
        return self.address.spec


@dataclass(frozen=True)
class Artifact:
    """An artifact's files, rooted at its folder: verified, or skipped as its manifest says.

    `note` is what else there is to say of its verification.
    """

    digest: Digest
    note: str = ""


class VerificationFailed(Exception):
    """An artifact that doesn't compute what its model computes; `report` is the whole report."""

    def __init__(self, address: Address, failure: str, report: Digest) -> None:
        self.failure = failure.rstrip(".") + "."
        super().__init__(f"{address}: {self.failure} Full report: `pants test {address}`")
        self.address = address
        self.report = report


@dataclass(frozen=True)
class VerifiedExport:
    """An export whose manifest is to say how its verification ended, and what its recipe said.

    The recipe isn't known to the export process: equal specs share one export.
    """

    artifact: Digest
    status: str
    tolerance: FrozenDict[str, float]
    recipe: str = ""  # The record of one as JSON, because a parameter of a rule is hashed.
    note: str = ""


@rule(desc="Build an artifact", level=LogLevel.DEBUG)
async def build_artifact(request: ArtifactRequest) -> Artifact:
    address = request.address
    exported, settings, wrapped = await MultiGet(
        Get(ExportedModel, ExportedModelRequest(address)),
        Get(ExportSettings, ExportSettingsRequest(address)),
        Get(WrappedTarget, WrappedTargetRequest(address, "an artifact")),
    )
    recipe = settings.recipe.to_json() if settings.recipe else ""
    if wrapped.target[SkipVerifyField].value:
        skipped = VerifiedExport(exported.artifact, "skipped", FrozenDict(), recipe)
        return await Get(Artifact, VerifiedExport, skipped)
    verification = await Get(Verification, VerificationRequest(address))
    if verification.failure is not None:
        raise VerificationFailed(address, verification.failure, verification.report)
    note = verification.unexecuted
    passed = VerifiedExport(
        exported.artifact,
        "passed" if note is None else "structure",
        verification.tolerance if note is None else FrozenDict(),
        recipe,
        note or "",
    )
    return await Get(Artifact, VerifiedExport, passed)


@rule(desc="Record the verification of an artifact", level=LogLevel.DEBUG)
async def record_verification(request: VerifiedExport) -> Artifact:
    manifests, entries = await MultiGet(
        Get(DigestContents, DigestSubset(request.artifact, PathGlobs([MANIFEST_FILE]))),
        Get(DigestEntries, Digest, request.artifact),
    )
    manifest = Manifest.from_json(manifests[0].content.decode())
    verification = VerificationRecord(request.status, dict(request.tolerance), request.note)
    recipe = RecipeRecord.from_json(request.recipe) if request.recipe else None
    recorded = dataclasses.replace(manifest, verification=verification, recipe=recipe).to_json()
    # By entry and not by content: no other file is read.
    kept = [entry for entry in entries if entry.path != MANIFEST_FILE]
    written = FileContent(MANIFEST_FILE, recorded.encode())
    return Artifact(await Get(Digest, CreateDigest([*kept, written])), request.note)


def rules() -> Iterable[object]:
    return collect_rules()
