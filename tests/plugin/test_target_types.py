"""The targets as `list`, `peek`, `dependencies`, `help` and `parametrize` see them."""

from __future__ import annotations

import json
from typing import Any, Dict

import pytest
from pants.backend.project_info import peek
from pants.core.util_rules.environments import EnvironmentNameRequest
from pants.engine.addresses import Address
from pants.engine.fs import Snapshot
from pants.engine.target import Dependencies, DependenciesRequest, Targets
from pants.help.help_info_extracter import TargetTypeHelpInfo
from pants.testutil.rule_runner import RuleRunner

from model_export.plugin import register
from model_export.plugin.artifacts import ArtifactRequest
from model_export.plugin.checkpoint_folders import CheckpointFolder, CheckpointRequest
from model_export.plugin.export_spec import export_spec
from model_export.plugin.fields import ArtifactPathField
from model_export.plugin.goals.package import ExportFieldSet
from model_export.spec import CheckpointOrigin, ExportRequest, Toolchain

FULL = """\
random_checkpoint(name="ckpt", config="tiny/config.json", seed=3, sources=["tiny/tokenizer.json"])

export_model(
    name="full",
    model=":ckpt",
    config={
        "export_format": "onnx",
        "dynamic_shapes": {"input_ids": {0: "batch", 1: "seq"}, "cache": [[{0: "AUTO"}], None]},
    },
    architecture="Qwen3ForCausalLM",
    dtype="float16",
    for_generation=True,
    generation_config={"cache_implementation": "static", "max_cache_len": 64, "eos_token_id": [1]},
    multi_token_decode=True,
    components=["decode"],
    component_config={"decode": {"optimize": False}},
    sample_inputs={"text": ["a", "b"], "x": {"values": [[1.5, 2.0]], "dtype": "float32"}},
    dims={"seq": (1, 64)},
    output_path="models/full",
    tags=["release"],
    description="All fields.",
)
"""


def _peeked(rule_runner: RuleRunner, address: Address) -> Dict[str, Any]:
    target = rule_runner.get_target(address)
    data = peek.TargetData(target, expanded_sources=None, expanded_dependencies=())
    parsed = json.loads(peek.render_json([data]))
    return dict(parsed[0])


def test_every_field_reaches_the_spec_and_peek(rule_runner: RuleRunner) -> None:
    rule_runner.write_files({"types/full/BUILD": FULL})
    address = Address("types/full", target_name="full")
    spec = export_spec(rule_runner.get_target(address))
    assert spec.architecture == "Qwen3ForCausalLM"
    assert spec.components == ("decode",)
    assert spec.component_config == {"decode": {"optimize": False}}
    assert spec.for_component("decode").config == {**spec.config, "optimize": False}
    assert spec.dims == {"seq": (1, 64)}
    assert spec.generation_config["eos_token_id"] == [1]
    assert spec.config["dynamic_shapes"]["cache"] == [[{"0": "AUTO"}], None]
    assert spec.config["external_data"] is True
    request = ExportRequest(spec, CheckpointOrigin("local", "x"), Toolchain("onnx", "0"))
    assert ExportRequest.from_json(request.to_json()).to_json() == request.to_json()
    assert "types/full" not in request.to_json()

    peeked = _peeked(rule_runner, address)
    assert peeked["config"]["dynamic_shapes"]["input_ids"] == {"0": "batch", "1": "seq"}
    assert peeked["sample_inputs"]["x"] == {"values": [[1.5, 2.0]], "dtype": "float32"}
    assert peeked["dims"] == {"seq": [1, 64]}


def test_the_checkpoint_is_a_dependency(rule_runner: RuleRunner) -> None:
    rule_runner.write_files({"types/deps/BUILD": FULL})
    target = rule_runner.get_target(Address("types/deps", target_name="full"))
    found = rule_runner.request(Targets, [DependenciesRequest(target[Dependencies])])
    assert [item.address.spec for item in found] == ["types/deps:ckpt"]


def test_the_config_is_among_the_sources(rule_runner: RuleRunner) -> None:
    rule_runner.write_files({"types/owned/BUILD": FULL})
    peeked = _peeked(rule_runner, Address("types/owned", target_name="ckpt"))
    assert peeked["sources_raw"] == ["tiny/config.json", "tiny/tokenizer.json"]


def test_parametrize(rule_runner: RuleRunner) -> None:
    rule_runner.write_files(
        {
            "types/many/BUILD": (
                'local_checkpoint(name="a", sources=["config.json"])\n'
                "export_model(\n"
                '    name="x",\n'
                '    model=":a",\n'
                '    config=parametrize(onnx={"export_format": "onnx"},\n'
                '                       ov={"export_format": "openvino"}),\n'
                '    dtype=parametrize("float32", "float16"),\n'
                "    for_generation=parametrize(yes=True, no=False),\n"
                ")\n"
            )
        }
    )
    parameters = {"config": "ov", "dtype": "float16", "for_generation": "yes"}
    target = rule_runner.get_target(Address("types/many", target_name="x", parameters=parameters))
    spec = export_spec(target)
    assert (spec.export_format, spec.dtype, spec.for_generation) == ("openvino", "float16", True)
    assert target[ArtifactPathField].value_or_default(file_ending=None) == (
        "types/many/x@config=ov,dtype=float16,for_generation=yes"
    )


def test_the_artifact_is_at_the_path_of_its_target(rule_runner: RuleRunner) -> None:
    rule_runner.write_files({"types/deep/er/BUILD": FULL.replace('output_path="models/full",', "")})
    target = rule_runner.get_target(Address("types/deep/er", target_name="full"))
    assert target[ArtifactPathField].value_or_default(file_ending=None) == "types/deep/er/full"
    rule_runner.write_files({"types/given/BUILD": FULL})
    target = rule_runner.get_target(Address("types/given", target_name="full"))
    assert target[ArtifactPathField].value_or_default(file_ending=None) == "models/full"


@pytest.mark.parametrize(
    ("config", "generation_config", "stateful"),
    [
        ({}, {}, True),
        ({}, {"cache_implementation": "static", "max_cache_len": 8}, False),
        ({"stateful": True}, {"cache_implementation": "static", "max_cache_len": 8}, True),
    ],
)
def test_openvino_keeps_no_static_cache_as_its_state_unless_told_so(
    rule_runner: RuleRunner,
    config: Dict[str, Any],
    generation_config: Dict[str, Any],
    stateful: bool,
) -> None:
    build = (
        f'export_model(name="x", model=":y", for_generation=True, '
        f'config={{"export_format": "openvino", **{config}}}, '
        f"generation_config={generation_config})"
    )
    rule_runner.write_files({"state/BUILD": build})
    spec = export_spec(rule_runner.get_target(Address("state", target_name="x")))
    assert spec.config["stateful"] is stateful


def test_equal_specs_are_equal_whatever_their_address(rule_runner: RuleRunner) -> None:
    rule_runner.write_files({"types/one/BUILD": FULL, "types/two/BUILD": "# Another.\n" + FULL})
    specs = [
        export_spec(rule_runner.get_target(Address(folder, target_name="full")))
        for folder in ("types/one", "types/two")
    ]
    assert specs[0] == specs[1]
    assert (
        ArtifactRequest(Address("types/one", target_name="full")).debug_hint() == "types/one:full"
    )


def test_the_environment_reaches_the_build(rule_runner: RuleRunner) -> None:
    rule_runner.write_files(
        {"types/env/BUILD": FULL.replace("tags=", 'environment="builder", tags=')}
    )
    target = rule_runner.get_target(Address("types/env", target_name="full"))
    request = EnvironmentNameRequest.from_field_set(ExportFieldSet.create(target))
    assert request.raw_value == "builder"


@pytest.mark.parametrize("target_type", register.target_types(), ids=lambda item: item.alias)
def test_help(rule_runner: RuleRunner, target_type: Any) -> None:
    info = TargetTypeHelpInfo.create(
        target_type,
        union_membership=rule_runner.union_membership,
        provider="model_export.plugin",
        get_field_type_provider=None,
    )
    assert info.summary
    for field in info.fields:
        assert field.description and len(field.description) > 20, field.alias
        assert field.type_hint


def test_a_local_checkpoint_is_rooted_at_its_folder(rule_runner: RuleRunner) -> None:
    rule_runner.write_files(
        {
            "types/local/BUILD": 'local_checkpoint(name="c", sources=["sub/**"], root="sub")\n',
            "types/local/sub/config.json": "{}",
            "types/local/sub/model.safetensors": "",
            "types/local/sub/onnx/notes.txt": "",
        }
    )
    request = CheckpointRequest(Address("types/local", target_name="c"))
    folder = rule_runner.request(CheckpointFolder, [request])
    assert rule_runner.request(Snapshot, [folder.digest]).files == (
        "config.json",
        "model.safetensors",
        "onnx/notes.txt",
    )
    assert folder.origin == CheckpointOrigin("local", "types/local/sub", False)


def test_a_checkpoint_whose_own_code_is_trusted(rule_runner: RuleRunner) -> None:
    rule_runner.write_files(
        {
            "types/code/BUILD": (
                'local_checkpoint(name="c", sources=["*.json", "*.safetensors", "*.py"], '
                "trust_remote_code=True)\n"
            ),
            "types/code/config.json": "{}",
            "types/code/model.safetensors": "",
            "types/code/modeling_own.py": "",
        }
    )
    request = CheckpointRequest(Address("types/code", target_name="c"))
    folder = rule_runner.request(CheckpointFolder, [request])
    assert folder.origin == CheckpointOrigin("local", "types/code", trust_remote_code=True)
    assert "modeling_own.py" in rule_runner.request(Snapshot, [folder.digest]).files
