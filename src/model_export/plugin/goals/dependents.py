"""Hands artifacts and checkpoints to the targets that depend on them.

An artifact's files lie at the path they have in `dist/`, a checkpoint's in a folder named after its
target, below the folder of the BUILD file.
"""

from __future__ import annotations

import os
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
from model_export.plugin.checkpoint_folders import CheckpointFolder, CheckpointRequest
from model_export.plugin.checkpoint_types import CheckpointSourcesField
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


class GenerateCheckpointFiles(GenerateSourcesRequest):
    input = CheckpointSourcesField
    output = FileSourceField
    exportable = False


@rule(desc="Make a checkpoint for a dependent", level=LogLevel.DEBUG)
async def checkpoint_files(request: GenerateCheckpointFiles) -> GeneratedSources:
    address = request.protocol_target.address
    checkpoint = await Get(CheckpointFolder, CheckpointRequest(address))
    name = f"{address.generated_name or address.target_name}{address.parameters_repr}"
    path = os.path.join(address.spec_path, name)
    return GeneratedSources(await Get(Snapshot, AddPrefix(checkpoint.digest, path)))


def rules() -> Iterable[object]:
    return [
        *collect_rules(),
        UnionRule(GenerateSourcesRequest, GenerateArtifactFiles),
        UnionRule(GenerateSourcesRequest, GenerateCheckpointFiles),
    ]
