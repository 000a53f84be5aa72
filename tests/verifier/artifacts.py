"""Artifacts of tiny models with their probes, as an export leaves them, and edits of both."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from model_export.exporter.backend import load_backend
from model_export.exporter.components import build_components
from model_export.exporter.merge_rule import find_merge_rule
from model_export.exporter.probe import record_probe
from model_export.manifest import (
    MANIFEST_FILE,
    CheckpointRecord,
    ComponentRecord,
    Manifest,
    record_files,
)
from model_export.spec import ExportSpec
from model_export.verifier.results import Verdict
from model_export.verifier.verification import verify


@dataclass(frozen=True)
class Built:
    """An artifact and the probe it is verified with."""

    artifact: Path
    probe: Path

    @property
    def manifest(self) -> Manifest:
        return Manifest.from_json((self.artifact / MANIFEST_FILE).read_text(encoding="utf-8"))

    def record(self, component: str) -> ComponentRecord:
        (record,) = (item for item in self.manifest.components if item.name == component)
        return record

    def verify(self, tolerance: Mapping[str, float] | None = None) -> Verdict:
        return verify(self.artifact, self.probe, tolerance or {})

    def copy(self, folder: Path) -> Built:
        """A copy of the artifact to spoil, with the same probe."""
        return Built(Path(shutil.copytree(self.artifact, folder / "artifact")), self.probe)

    def rehash(self) -> None:
        """Make the manifest's hashes true again: what was wrong in the export has good ones."""
        self.write(replace(self.manifest, files=record_files(self.artifact)))

    def replace_record(self, changed: ComponentRecord) -> None:
        """Let the manifest say `changed` about the component of that name."""
        components = tuple(
            changed if item.name == changed.name else item for item in self.manifest.components
        )
        self.write(replace(self.manifest, components=components))

    def failure(self) -> str:
        """The line that the artifact fails with."""
        failure = self.verify().failure
        assert failure is not None, "the artifact passed"
        return failure

    def write(self, manifest: Manifest) -> None:
        (self.artifact / MANIFEST_FILE).write_text(manifest.to_json(), encoding="utf-8")


def build(
    make_model: Callable[[], PreTrainedModel],
    inputs: dict[str, Any],
    spec: ExportSpec,
    folder: Path,
    *,
    probe: Path | None = None,
    spoil: Callable[[torch.nn.Module], None] | None = None,
    built_spec: ExportSpec | None = None,
    built_inputs: dict[str, Any] | None = None,
) -> Built:
    """Record what `make_model()` says to `spec`, unless there is a `probe`, and export it.

    A wrong export: `spoil` changes each component's module before it is traced, and `built_spec`
    and `built_inputs` are what is exported in place of what the manifest and the probe say.
    """
    built = Built(folder / "artifact", probe or folder / "probe")
    if probe is None:
        recorded = make_model()
        rule = find_merge_rule(recorded, inputs, spec)
        record_probe(recorded, None, dict(inputs), spec, built.probe, rule)
    model = make_model()
    used = built_spec or spec
    backend = load_backend(spec.export_format)
    programs = {}
    for component in build_components(model, dict(built_inputs or inputs), used):
        if spoil is not None:
            spoil(component.module)
        programs[component.name] = backend.export(
            component.name, component.module, component.inputs, used.for_component(component.name)
        )
    built.artifact.mkdir(parents=True)
    records = backend.save(programs, built.artifact, used)
    model.config.to_json_file(built.artifact / "config.json")
    if model.can_generate():
        model.generation_config.to_json_file(built.artifact / "generation_config.json")
    built.write(
        Manifest(
            spec.export_format,
            CheckpointRecord("random", "tests", ()),
            asdict(spec),
            {"resolve": spec.export_format, "sha256": "0" * 64},
            {},
            records,
            record_files(built.artifact),
            multimodal=find_merge_rule(make_model(), inputs, spec) if spec.for_generation else None,
        )
    )
    return built
