"""What another machine has to build is left out of `::`, and fails where it is named."""

from __future__ import annotations

import glob
import logging
from pathlib import Path
from typing import Iterable, List, Tuple

import pytest
from pants.base.specs import AddressLiteralSpec, DirLiteralSpec, RecursiveGlobSpec, Spec
from pants.core.goals import package as core_package
from pants.core.goals import test as core_test
from pants.core.goals.package import Package
from pants.core.goals.test import Test
from pants.core.target_types import FileTarget
from pants.core.target_types import rules as core_target_rules
from pants.core.util_rules import archive, distdir, source_files, system_binaries
from pants.engine.addresses import Address
from pants.engine.internals.scheduler import ExecutionError
from pants.engine.platform import Platform
from pants.testutil.rule_runner import PYTHON_BOOTSTRAP_ENV, QueryRule, RuleRunner

from model_export.plugin import register
from model_export.plugin.buildability import Buildability, BuildabilityRequest
from model_export.plugin.named_targets import is_named

HERE = Platform.create_for_localhost().value
ELSEWHERE = "macos_arm64" if HERE.startswith("linux") else "linux_x86_64"
BUILD = f"""\
local_checkpoint(name="ckpt", sources=["config.json"])
export_model(
    name="elsewhere",
    model=":ckpt",
    config={{"export_format": "onnx"}},
    platforms=["{ELSEWHERE}"],
)
export_model(
    name="gpu",
    model=":ckpt",
    config={{"export_format": "executorch", "backend": "cuda"}},
    dtype="bfloat16",
)
local_checkpoint(name="with_recipe", sources=["recipe/*"], root="recipe")
export_model(name="recipe_gpu", model=":with_recipe", recipe=True)
"""
RECIPE = """\
{
  "schema_version": 1,
  "config": {"export_format": "executorch", "backend": "cuda"},
  "dtype": "bfloat16"
}
"""
LEFT_OUT = (
    f"m:elsewhere: left out: `platforms` is ['{ELSEWHERE}'], and this is {HERE}. "
    f"Build it on {ELSEWHERE}.",
    "m:gpu: left out: `config['backend']` is 'cuda', and this machine has no CUDA GPU. "
    "Build it where one is, or use 'xnnpack'.",
    "m:recipe_gpu: left out: `export_config.json: config['backend']` is 'cuda', and this machine "
    "has no CUDA GPU. Build it where one is, or use 'xnnpack'.",
)
pytestmark = pytest.mark.skipif(bool(glob.glob("/dev/nvidia[0-9]*")), reason="has a GPU")


@pytest.fixture
def rule_runner() -> RuleRunner:
    runner = RuleRunner(
        rules=[
            *register.rules(),
            *archive.rules(),
            *core_package.rules(),
            *core_target_rules(),
            *core_test.rules(),
            *distdir.rules(),
            *source_files.rules(),
            *system_binaries.rules(),
            QueryRule(Buildability, [BuildabilityRequest]),
        ],
        target_types=[*register.target_types(), FileTarget],
    )
    runner.write_files(
        {
            "m/BUILD": BUILD,
            "m/config.json": "{}",
            "m/recipe/config.json": "{}",
            "m/recipe/export_config.json": RECIPE,
            "m/recipe/model.safetensors": "",
        }
    )
    return runner


def _run(
    rule_runner: RuleRunner, goal: type, args: Iterable[str], caplog: pytest.LogCaptureFixture
) -> Tuple[int, List[str]]:
    """The exit code of a goal, and the lines it says of targets of `m`."""
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        result = rule_runner.run_goal_rule(goal, args=args, env_inherit=PYTHON_BOOTSTRAP_ENV)
    lines = [line for record in caplog.records for line in record.getMessage().splitlines()]
    return result.exit_code, sorted(line for line in lines if line.startswith("m:"))


@pytest.mark.parametrize("goal", [Package, Test])
def test_a_glob_leaves_them_out(
    rule_runner: RuleRunner, goal: type, caplog: pytest.LogCaptureFixture
) -> None:
    for spec in ("::", "m:", "m::"):
        assert _run(rule_runner, goal, [spec], caplog) == (0, list(LEFT_OUT))
    assert not Path(rule_runner.build_root, "dist", "m").exists()


@pytest.mark.parametrize("name", ["elsewhere", "gpu", "recipe_gpu"])
def test_package_of_a_name_fails(
    rule_runner: RuleRunner, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    message = next(line for line in LEFT_OUT if line.startswith(f"m:{name}: "))
    with pytest.raises(ExecutionError) as caught:
        _run(rule_runner, Package, [f"m:{name}"], caplog)
    assert message.replace("left out: ", "") in str(caught.value)


@pytest.mark.parametrize("name", ["elsewhere", "gpu", "recipe_gpu"])
def test_test_of_a_name_fails(
    rule_runner: RuleRunner, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert _run(rule_runner, Test, [f"m:{name}"], caplog) == (1, [])


def test_what_a_target_says_counts_before_its_recipe(rule_runner: RuleRunner) -> None:
    fields = {
        "cpu": 'config={"backend": "xnnpack"}',
        "other_format": 'config={"export_format": "dynamo"}',
        "part": 'config={"backend": "xnnpack"}, for_generation=True, '
        'component_config={"decode": {"backend": "cuda"}}',
    }
    rule_runner.write_files(
        {
            "m/own/BUILD": "".join(
                f'export_model(name="{name}", model="m:with_recipe", recipe=True, {more})\n'
                for name, more in fields.items()
            )
        }
    )
    found = {
        name: rule_runner.request(
            Buildability, [BuildabilityRequest(Address("m/own", target_name=name))]
        ).field
        for name in fields
    }
    assert found == {
        "cpu": None,
        "other_format": None,
        "part": "component_config['decode']['backend']",
    }


def test_a_recipe_that_cannot_be_read_fails_its_own_test(
    rule_runner: RuleRunner, caplog: pytest.LogCaptureFixture
) -> None:
    rule_runner.write_files({"m/recipe/export_config.json": "{"})
    assert _run(rule_runner, Test, ["m::"], caplog) == (1, list(LEFT_OUT[:2]))


@pytest.mark.parametrize(
    "spec, named",
    [
        (AddressLiteralSpec("a/b", "x"), True),
        (AddressLiteralSpec("a/b", "y"), False),
        (AddressLiteralSpec("a", "x"), False),
        (RecursiveGlobSpec("a/b"), False),
        (DirLiteralSpec("a/b"), False),
    ],
)
def test_what_counts_as_named(spec: Spec, named: bool) -> None:
    address = Address("a/b", target_name="x")
    assert is_named([spec], address) is named
    assert is_named([RecursiveGlobSpec("c"), spec], address) is named


def test_a_folder_names_the_target_of_its_name() -> None:
    assert is_named([DirLiteralSpec("a/b")], Address("a/b", target_name="b"))


def test_one_of_a_parametrized_target_is_named() -> None:
    address = Address("a", target_name="x", parameters={"dtype": "float16"})
    assert is_named([AddressLiteralSpec("a", "x")], address)
    wanted = AddressLiteralSpec("a", "x", parameters=address.parameters)
    assert is_named([wanted], address)
    assert not is_named([wanted], Address("a", target_name="x"))
