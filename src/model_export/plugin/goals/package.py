"""`package` for `export_model`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterable

from pants.core.goals.package import BuiltPackage, PackageFieldSet
from pants.core.util_rules.environments import EnvironmentField
from pants.engine.fs import AddPrefix, Digest, DigestEntries, FileEntry
from pants.engine.rules import Get, collect_rules, rule
from pants.engine.unions import UnionRule
from pants.util.logging import LogLevel

from model_export.plugin.artifacts import Artifact, ArtifactRequest
from model_export.plugin.dist import ModelArtifact
from model_export.plugin.fields import ArtifactPathField
from model_export.plugin.target_types import ConfigField, ModelField


@dataclass(frozen=True)
class ExportFieldSet(PackageFieldSet):
    required_fields = (ModelField, ConfigField, ArtifactPathField)

    output_path: ArtifactPathField
    # Pants reads the environment from the field set: without it `environment=` has no effect.
    environment: EnvironmentField


@rule(desc="Package an exported model", level=LogLevel.DEBUG)
async def package_artifact(field_set: ExportFieldSet) -> BuiltPackage:
    artifact = await Get(Artifact, ArtifactRequest(field_set.address))
    path = field_set.output_path.value_or_default(file_ending=None)
    entries = await Get(DigestEntries, Digest, artifact.digest)
    sizes = [
        entry.file_digest.serialized_bytes_length
        for entry in entries
        if isinstance(entry, FileEntry)
    ]
    digest = await Get(Digest, AddPrefix(artifact.digest, path))
    summary = [f"  {len(sizes)} files, {sum(sizes) / 1e6:.1f} MB"]
    if artifact.note:
        summary.append(f"  {artifact.note}")
    return BuiltPackage(digest, (ModelArtifact(path, tuple(summary), digest),))


def rules() -> Iterable[object]:
    return [*collect_rules(), UnionRule(PackageFieldSet, ExportFieldSet)]
