"""Hands an artifact to the targets that depend on it, as files at the path it has in `dist/`."""

from __future__ import annotations

from typing import Iterable

from pants.core.target_types import FileSourceField
from pants.core.util_rules.environments import EnvironmentNameRequest
from pants.engine.environment import EnvironmentName
from pants.engine.fs import AddPrefix, Snapshot
from pants.engine.rules import Get, collect_rules, rule
from pants.engine.target import GeneratedSources, GenerateSourcesRequest
from pants.engine.unions import UnionRule
from pants.util.logging import LogLevel

from model_export.plugin.artifacts import Artifact, ArtifactRequest
from model_export.plugin.fields import ArtifactPathField
from model_export.plugin.target_types import ArtifactSourcesField


class GenerateArtifactFiles(GenerateSourcesRequest):
    # Files and not resources: as resources, mypy and pylint would start exports.
    input = ArtifactSourcesField
    output = FileSourceField
    exportable = False


@rule(desc="Export a model for a dependent", level=LogLevel.DEBUG)
async def artifact_files(request: GenerateArtifactFiles) -> GeneratedSources:
    target = request.protocol_target
    environment = await Get(
        EnvironmentName, EnvironmentNameRequest, EnvironmentNameRequest.from_target(target)
    )
    artifact = await Get(
        Artifact,
        {ArtifactRequest(target.address): ArtifactRequest, environment: EnvironmentName},
    )
    path = target[ArtifactPathField].value_or_default(file_ending=None)
    return GeneratedSources(await Get(Snapshot, AddPrefix(artifact.digest, path)))


def rules() -> Iterable[object]:
    return [*collect_rules(), UnionRule(GenerateSourcesRequest, GenerateArtifactFiles)]
