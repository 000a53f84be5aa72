"""`recipe=True` in a BUILD file: whose settings count, and what the manifest says of both."""

from __future__ import annotations

import json
from typing import Any, Dict

import pytest
from pants.engine.addresses import Address
from pants.engine.fs import CreateDigest, Digest, DigestContents, FileContent
from pants.engine.internals.scheduler import ExecutionError
from pants.testutil.rule_runner import RuleRunner
from pants.util.frozendict import FrozenDict

from model_export.manifest import CheckpointRecord, Manifest, RecipeRecord
from model_export.plugin.artifacts import Artifact, ArtifactRequest, VerifiedExport
from model_export.plugin.export_settings import ExportSettings, ExportSettingsRequest
from model_export.plugin.export_spec import export_spec
from model_export.plugin.recipes import MAX_RECIPE_BYTES

CHECKPOINT = 'local_checkpoint(name="ckpt", sources=["*.json", "*.safetensors"])\n'
RECIPE: Dict[str, Any] = {
    "schema_version": 1,
    "config": {
        "export_format": "onnx",
        "dynamic_shapes": {"input_ids": {"0": "batch", "1": "seq"}},
        "opset_version": 21,
    },
    "dims": {"seq": [1, 4096]},
    "sample_inputs": {"text": ["Hello", "Hi there"]},
}
SPELLED_OUT = """
config={
    "export_format": "onnx",
    "dynamic_shapes": {"input_ids": {0: "batch", 1: "seq"}},
    "opset_version": 21,
},
dims={"seq": (1, 4096)},
sample_inputs={"text": ["Hello", "Hi there"]},
"""


def _write(rule_runner: RuleRunner, folder: str, more: str, **files: object) -> Address:
    """A target `x` in `folder` with the fields `more`, and its checkpoint with these JSON files."""
    build = f'{CHECKPOINT}export_model(name="x", model=":ckpt", {more})\n'
    texts = {
        f"{folder}/{name}.json": content if isinstance(content, str) else json.dumps(content)
        for name, content in {"config": {}, **files}.items()
    }
    rule_runner.write_files({f"{folder}/BUILD": build, f"{folder}/model.safetensors": "", **texts})
    return Address(folder, target_name="x")


def _settings(rule_runner: RuleRunner, address: Address) -> ExportSettings:
    return rule_runner.request(ExportSettings, [ExportSettingsRequest(address)])


def test_a_recipe_is_as_good_as_the_same_fields(rule_runner: RuleRunner) -> None:
    by_recipe = _settings(
        rule_runner, _write(rule_runner, "recipes/a", "recipe=True", export_config=RECIPE)
    )
    by_fields = _write(rule_runner, "recipes/b", SPELLED_OUT, export_config={"not": "read"})
    spelled_out = _settings(rule_runner, by_fields)
    assert by_recipe.spec == spelled_out.spec == export_spec(rule_runner.get_target(by_fields))
    assert spelled_out.recipe is None
    settings = {name: value for name, value in RECIPE.items() if name != "schema_version"}
    assert by_recipe.recipe == RecipeRecord("export_config.json", settings, {})


def test_fields_win_and_the_record_has_both(rule_runner: RuleRunner) -> None:
    more = 'recipe=True, config={"opset_version": 20}, dtype="float16"'
    found = _settings(
        rule_runner, _write(rule_runner, "recipes/c", more, config={"export_config": RECIPE})
    )
    assert (found.spec.config["opset_version"], found.spec.dtype) == (20, "float16")
    assert found.spec.dims == {"seq": (1, 4096)}
    assert found.recipe is not None
    assert found.recipe.file == "config.json: export_config"
    assert found.recipe.settings["config"]["opset_version"] == 21
    assert found.recipe.overridden == {"config": {"opset_version": 20}, "dtype": "float16"}


def test_a_manifest_says_what_recipe_and_fields_said(rule_runner: RuleRunner) -> None:
    bare = Manifest(
        export_format="onnx",
        checkpoint=CheckpointRecord("local", "x", ()),
        spec={},
        lock={},
        engine={},
        components=(),
        files=(),
    )
    digest = rule_runner.request(
        Digest, [CreateDigest([FileContent("manifest.json", bare.to_json().encode())])]
    )
    record = RecipeRecord("export_config.json", {"dtype": "float32"}, {"dtype": "float16"})

    def recorded(recipe: str) -> str:
        request = VerifiedExport(digest, "passed", FrozenDict(), recipe)
        artifact = rule_runner.request(Artifact, [request])
        return rule_runner.request(DigestContents, [artifact.digest])[0].content.decode()

    assert Manifest.from_json(recorded(record.to_json())).recipe == record
    assert json.loads(recorded(record.to_json()))["recipe"] == {
        "file": "export_config.json",
        "settings": {"dtype": "float32"},
        "overridden": {"dtype": "float16"},
    }
    assert "recipe" not in json.loads(recorded(""))


@pytest.mark.parametrize(
    ("name", "more", "files", "message"),
    [
        (
            "absent",
            "recipe=True",
            {},
            "`recipe` is True, and the checkpoint has no export_config.json. Remove it and write",
        ),
        (
            "wrong",
            "recipe=True",
            {"export_config": {**RECIPE, "config": {"export_format": "onxx"}}},
            "`export_config.json: config['export_format']` is 'onxx', which is no export format. "
            "Did you mean 'onnx'?",
        ),
        (
            "together",
            'recipe=True, config={"stateful": False}',
            {"export_config": RECIPE},
            "`config['stateful']` belongs to openvino, not to onnx. Remove it",
        ),
        (
            "unverifiable",
            'recipe=True, dtype="bfloat16"',
            {"export_config": RECIPE},
            "`dtype` is 'bfloat16', which ONNX Runtime doesn't run on a CPU",
        ),
        (
            "huge",
            "recipe=True",
            {"export_config": " " * (MAX_RECIPE_BYTES + 1)},
            "`export_config.json` has 1048577 bytes. A recipe has at most 1048576.",
        ),
    ],
)
def test_refuses(
    rule_runner: RuleRunner, name: str, more: str, files: Dict[str, object], message: str
) -> None:
    address = _write(rule_runner, f"recipes/{name}", more, **files)
    with pytest.raises(ExecutionError) as caught:
        rule_runner.request(Artifact, [ArtifactRequest(address)])
    assert f"TargetError: {address}: {message}" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "more", "message"),
    [
        ("bare", "", "`config` is missing. Write config="),
        ("no_format", 'config={"dynamic": True}', "`config` has no 'export_format'. Add one of"),
        (
            "unknown",
            'recipe=True, config={"dynamc": True}',
            "`config['dynamc']` is no key of any format's config. Did you mean 'dynamic'?",
        ),
        (
            "type",
            'recipe=True, config={"dynamic": 1}',
            "`config['dynamic']` must be True or False, not 1.",
        ),
    ],
)
def test_refuses_a_build_file(rule_runner: RuleRunner, name: str, more: str, message: str) -> None:
    address = _write(rule_runner, f"recipes/build_{name}", more, export_config=RECIPE)
    with pytest.raises(ExecutionError) as caught:
        rule_runner.get_target(address)
    assert f"{address}: {message}" in str(caught.value)
