"""Images and sound that a BUILD file names as sample inputs, and the one line for each mistake."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pants.engine.addresses import Address
from pants.engine.internals.scheduler import ExecutionError
from pants.engine.target import Dependencies, DependenciesRequest, InvalidFieldException, Targets
from pants.testutil.rule_runner import QueryRule, RuleRunner
from pants.util.frozendict import FrozenDict

from model_export.plugin.export_spec import export_spec
from model_export.plugin.field_errors import SpecError
from model_export.plugin.recipes import check_setting
from model_export.plugin.sample_files import SampleFiles, SampleFilesRequest, with_sample_paths
from model_export.recipe import recipe_of
from plugin.conftest import make_rule_runner

_BUILD = """\
local_checkpoint(name="ckpt", sources=["config.json"])
export_model(
    name="x",
    model=":ckpt",
    config={"export_format": "onnx", "dynamic": True},
    sample_inputs=%s,
)
files(name="pictures", sources=["*.png"])
file(name="cat", source="z/cat.JPG")
file(name="sound", source="a.wav")
"""
_SAMPLES = '{"text": ["<image>"] * 3, "images": [":cat", ":pictures"], "audio": [":sound"]}'


@pytest.fixture(scope="module")
def seen() -> RuleRunner:
    from pants.core.target_types import FilesGeneratorTarget

    runner = make_rule_runner(
        target_types=[FilesGeneratorTarget],
        queries=[QueryRule(SampleFiles, [SampleFilesRequest])],
    )
    runner.write_files(
        {
            "seen/BUILD": _BUILD % _SAMPLES,
            **{f"seen/{name}": name for name in ("b.png", "a.png", "z/cat.JPG", "a.wav")},
        }
    )
    return runner


def _request(images: str) -> SampleFilesRequest:
    files = FrozenDict({"images": (images,)})
    return SampleFilesRequest(files, Address("seen", target_name="x"))


def test_files_are_dependencies_in_the_order_of_the_field(seen: RuleRunner) -> None:
    target = seen.get_target(Address("seen", target_name="x"))
    found = seen.request(Targets, [DependenciesRequest(target[Dependencies])])
    assert {item.address.target_name for item in found} == {"ckpt", "pictures", "cat", "sound"}
    spec = export_spec(target)
    assert spec.sample_inputs is not None
    files = seen.request(SampleFiles, [SampleFilesRequest.of(spec.sample_inputs, target.address)])
    assert dict(files.paths) == {
        "images": ("seen/z/cat.JPG", "seen/a.png", "seen/b.png"),
        "audio": ("seen/a.wav",),
    }
    assert with_sample_paths(spec, files.paths) == {
        "text": ["<image>"] * 3,
        "images": ["seen/z/cat.JPG", "seen/a.png", "seen/b.png"],
        "audio": ["seen/a.wav"],
    }


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (":sound", r"sample_inputs\['images'\]` hold seen/a.wav. Name files that end in .bmp"),
        (":ckpt", r"name seen:ckpt, a `local_checkpoint` target. Name a `file`"),
        (":absent", r"the `sample_inputs\['images'\]` field of seen:x"),
    ],
)
def test_other_targets_are_refused(seen: RuleRunner, name: str, message: str) -> None:
    with pytest.raises(ExecutionError, match=message):
        seen.request(SampleFiles, [_request(name)])


@pytest.mark.parametrize("value", ['":pictures"', "[]", "[3]"])
def test_addresses_are_a_list(seen: RuleRunner, value: str) -> None:
    seen.write_files({"wrong/BUILD": _BUILD % f'{{"images": {value}}}'})
    with pytest.raises(
        (InvalidFieldException, ExecutionError), match=r"\['images'\]` must be a list of addresses"
    ):
        seen.get_target(Address("wrong", target_name="x"))


def test_files_are_no_part_of_a_recipe(seen: RuleRunner) -> None:
    spec = export_spec(seen.get_target(Address("seen", target_name="x")))
    assert "sample_inputs" not in recipe_of(spec)
    text = replace(spec, sample_inputs={"text": ["Hi", "Hello"]})
    assert recipe_of(text)["sample_inputs"] == {"text": ["Hi", "Hello"]}
    with pytest.raises(SpecError, match="names files of a repository"):
        check_setting("sample_inputs", {"images": [":pictures"]})
