"""A recipe beside weights exports them in a script as in a build; an artifact has one again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import PreTrainedModel
from transformers.exporters.base import HfExporter

from exporter.backends.tiny_models import generation_spec, tiny_bert, tiny_qwen3
from model_export.exporter.pipeline import run_export
from model_export.exporter.recipe import from_pretrained
from model_export.manifest import record_files
from model_export.plugin.field_errors import SpecError
from model_export.recipe import RECIPE_FILE, recipe_text
from model_export.spec import CheckpointOrigin, ExportRequest, ExportSpec, Toolchain

BOUNDED = {
    "schema_version": 1,
    "config": {
        "export_format": "dynamo",
        "dynamic_shapes": {
            "input_ids": {"0": "batch", "1": "seq"},
            "attention_mask": {"0": "batch", "1": "seq"},
        },
        "prefer_deferred_runtime_asserts_over_guards": True,
    },
    "dims": {"batch": [1, 4], "seq": [2, 32]},
    "sample_inputs": {
        "input_ids": {"shape": [2, 8], "dtype": "int64"},
        "attention_mask": {"shape": [2, 8], "dtype": "int64"},
    },
}


def _checkpoint(folder: Path, model: PreTrainedModel, recipe: str) -> Path:
    model.save_pretrained(folder)
    (folder / RECIPE_FILE).write_text(recipe, encoding="utf-8")
    return folder


def test_one_call_exports_as_the_owner_says(tmp_path: Path) -> None:
    model = tiny_bert()
    folder = _checkpoint(tmp_path, model, json.dumps(BOUNDED))
    exporter = from_pretrained(folder)
    assert isinstance(exporter.exporter, HfExporter)
    exported = exporter.export(model, exporter.sample_inputs(model))
    program = exported.program.module()
    inputs = {
        "input_ids": torch.arange(33).reshape(3, 11),
        "attention_mask": torch.ones(3, 11, dtype=torch.int64),
    }
    # A shape that wasn't traced, inside of the bounds; and one outside of them.
    with torch.no_grad():
        expected = model(**inputs).last_hidden_state
    torch.testing.assert_close(program(**inputs).last_hidden_state, expected)
    with pytest.raises(AssertionError, match="<= 4"):
        program(**{name: tensor.repeat(2, 1) for name, tensor in inputs.items()})


def test_one_call_exports_the_components_of_a_recipe(tmp_path: Path) -> None:
    model = tiny_qwen3()
    spec = generation_spec("dynamo", {"dynamic": True}, components=("decode",))
    exporter = from_pretrained(_checkpoint(tmp_path, model, recipe_text(spec)))
    assert exporter.spec == spec
    exported = exporter.export(model, exporter.sample_inputs(model))
    assert list(exported.components) == ["decode"]
    exported.save_pretrained(tmp_path / "saved")
    assert (tmp_path / "saved/decode.pt2").is_file()


def test_settings_win(tmp_path: Path) -> None:
    folder = _checkpoint(tmp_path, tiny_bert(), json.dumps(BOUNDED))
    spec = from_pretrained(folder, config={"strict": True}, dtype="float16").spec
    assert (spec.config["strict"], spec.dtype) == (True, "float16")
    assert spec.dims == {"batch": (1, 4), "seq": (2, 32)}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dtyp": "float16"}, "`dtyp` is no setting of a recipe. Did you mean 'dtype'?"),
        ({"dtype": "fp16"}, "`dtype` is 'fp16', which no export has. Did you mean 'float16'?"),
        ({"components": ["decode"]}, "`components` only has a meaning with for_generation=True"),
    ],
)
def test_settings_are_checked(tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    (tmp_path / RECIPE_FILE).write_text(json.dumps(BOUNDED), encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        from_pretrained(tmp_path, **settings)
    assert str(caught.value).startswith(message)


def test_a_folder_without_a_recipe(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=f"has no {RECIPE_FILE}. Add one"):
        from_pretrained(tmp_path)


def _built(folder: Path, checkpoint: Path, spec: ExportSpec) -> Path:
    request = ExportRequest(
        spec, CheckpointOrigin("local", "tiny"), Toolchain(spec.export_format, "0" * 64)
    )
    run_export(request, checkpoint, folder / "artifact", folder / "probe")
    return folder / "artifact"


def test_an_artifact_carries_what_makes_it_again(tmp_path: Path) -> None:
    model = tiny_qwen3()
    spec = generation_spec("dynamo", {"dynamic": True})
    model.save_pretrained(tmp_path / "checkpoint")
    artifact = _built(tmp_path / "one", tmp_path / "checkpoint", spec)
    recipe = (artifact / RECIPE_FILE).read_text(encoding="utf-8")

    published = _checkpoint(tmp_path / "published", model, recipe)
    again = _built(tmp_path / "two", published, from_pretrained(published).spec)
    assert record_files(again) == record_files(artifact)
    assert RECIPE_FILE in {record.path for record in record_files(artifact)}
    # An artifact's own folder is one that has a recipe, too.
    assert from_pretrained(artifact).spec == spec
