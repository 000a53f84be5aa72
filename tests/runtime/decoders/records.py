"""Manifests around records that no export has made."""

from __future__ import annotations

from typing import Any

from model_export.manifest import CheckpointRecord, ComponentRecord, Manifest


def manifest_of(*components: ComponentRecord, **spec: Any) -> Manifest:
    """A manifest with these components, whose spec has these fields."""
    return Manifest(
        export_format="onnx",
        checkpoint=CheckpointRecord("random", "none", ()),
        spec={"multi_token_decode": True, "generation_config": {}, **spec},
        lock={},
        engine={},
        components=components,
        files=(),
    )
