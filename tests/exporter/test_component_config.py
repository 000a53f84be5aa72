"""Each component is built with its own config, and an error says which field it is of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from exporter.backends.tiny_models import generation_spec, tiny_qwen3
from model_export.exporter.errors import ExportError
from model_export.exporter.pipeline import run_export
from model_export.exporter.recipe import from_pretrained
from model_export.manifest import Manifest
from model_export.recipe import RECIPE_FILE
from model_export.spec import CheckpointOrigin, ExportRequest, ExportSpec, Toolchain

STATIC = {"dynamic": False}


def _export(folder: Path, spec: ExportSpec) -> Manifest:
    if not (folder / "checkpoint").exists():
        tiny_qwen3().save_pretrained(folder / "checkpoint")
    request = ExportRequest(
        spec, CheckpointOrigin("local", "tiny"), Toolchain(spec.export_format, "0" * 64)
    )
    return run_export(request, folder / "checkpoint", folder / "artifact", folder / "probe")


def _spec(parts: dict[str, Any], **fields: Any) -> ExportSpec:
    multi = fields.pop("multi_token_decode", False)
    return generation_spec("dynamo", {}, component_config=parts, multi_token_decode=multi, **fields)


def test_one_component_is_static_beside_a_dynamic_one(tmp_path: Path) -> None:
    manifest = _export(tmp_path, _spec({"prefill": STATIC}))
    prefill, decode = manifest.components
    assert prefill.inputs[0].shape == (2, 8)
    assert decode.inputs[0].shape[1] == 1
    assert isinstance(decode.inputs[0].shape[0], str)
    assert manifest.spec["component_config"] == {"prefill": STATIC}
    assert manifest.spec_of("prefill")["config"]["dynamic"] is False
    assert manifest.spec_of("decode")["config"]["dynamic"] is True


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            _spec({"image_encoder": STATIC}),
            r"`component_config\['image_encoder'\]` is of no component of this export. It builds "
            "prefill, decode",
        ),
        # With several tokens at once, the decode graph serves the prompt: no prefill is built.
        (
            _spec({"prefill": STATIC}, multi_token_decode=True),
            r"`component_config\['prefill'\]` is of no component of this export. It builds decode;",
        ),
        (
            _spec({"decode": {"dynamic_shapes": {"pixel_values": {"0": "batch"}}}}),
            r"`component_config\['decode'\]\['dynamic_shapes'\]\['pixel_values'\]` is not an input "
            "of that component. Its inputs are input_ids, ",
        ),
        (
            _spec({"decode": {"dynamic_shapes": {"input_ids": {"2": "batch"}}}}),
            r"`component_config\['decode'\]\['dynamic_shapes'\]\['input_ids'\]\[2\]` is not an",
        ),
    ],
)
def test_a_mistake_is_named_by_its_component(
    tmp_path: Path, spec: ExportSpec, message: str
) -> None:
    with pytest.raises(ExportError, match=message):
        _export(tmp_path, spec)
    assert not (tmp_path / "artifact").exists()


def test_a_recipe_in_a_script_builds_them_alike(tmp_path: Path) -> None:
    model = tiny_qwen3()
    model.save_pretrained(tmp_path)
    recipe = {
        "schema_version": 1,
        "config": {"export_format": "dynamo", "dynamic": True},
        "for_generation": True,
        "component_config": {"prefill": STATIC},
    }
    (tmp_path / RECIPE_FILE).write_text(json.dumps(recipe), encoding="utf-8")
    exporter = from_pretrained(tmp_path)
    exported = exporter.export(model, exporter.sample_inputs(model)).components
    sizes = {
        name: [
            node.meta["val"].shape[0]
            for node in part.program.graph.nodes
            if node.name == "input_ids"
        ]
        for name, part in exported.items()
    }
    assert sizes["prefill"] == [2]
    assert not isinstance(sizes["decode"][0], int)
