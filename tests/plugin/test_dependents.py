"""A target that depends on an `export_model` has its artifact, whole, at the path of `dist/`."""

from __future__ import annotations

from pathlib import Path

from model_export.manifest import MANIFEST_FILE, Manifest, record_files

ARTIFACT = Path("targets/qwen3_tiny_dynamo")


def test_the_artifact_is_in_the_sandbox() -> None:
    manifest = Manifest.from_json((ARTIFACT / MANIFEST_FILE).read_text(encoding="utf-8"))
    assert manifest.export_format == "dynamo"
    assert manifest.verification.status == "passed"
    assert record_files(ARTIFACT) == manifest.files
    assert {component.file for component in manifest.components} <= {
        file.path for file in manifest.files
    }
