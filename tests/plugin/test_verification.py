"""A real export that is verified for real: what `package`, `test` and `run` make of its verdict."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Mapping, Tuple
from xml.etree import ElementTree

import pytest
from pants.core.goals import package as core_package
from pants.core.goals import run as core_run
from pants.core.goals import test as core_test
from pants.core.goals.package import Package
from pants.core.goals.run import RunRequest
from pants.core.goals.test import Test
from pants.core.util_rules import distdir
from pants.engine.addresses import Address
from pants.engine.internals.scheduler import ExecutionError
from pants.engine.process import InteractiveProcess
from pants.engine.rules import QueryRule
from pants.testutil.rule_runner import (
    PYTHON_BOOTSTRAP_ENV,
    GoalRuleResult,
    RuleRunner,
    mock_console,
)

from model_export.manifest import Manifest
from model_export.plugin import register
from model_export.plugin.artifacts import Artifact, ArtifactRequest
from model_export.plugin.exports import ExportedModel, ExportedModelRequest
from model_export.plugin.goals.run import ArtifactRunFieldSet, runtime_resolve
from model_export.plugin.verifications import Verification, VerificationRequest

LOCK = Path("3rdparty/onnx/lock.txt")
# 1 MiB of weights: Pants links files of 512 KiB and more into a sandbox, and writes smaller ones.
CONFIG = """\
{"architectures": ["BertModel"], "model_type": "bert", "vocab_size": 4096, "hidden_size": 64,
 "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64,
 "max_position_embeddings": 64, "initializer_range": 0.4}
"""
CHECKPOINT = 'random_checkpoint(name="bert", config="config.json", seed=1)\n'
EXPORT = """\
export_model(
    name="{name}",
    model="m:bert",
    config={{"export_format": "onnx", "dynamic": True}},
    {more}
)
"""
OPTIONS = (
    "--python-enable-resolves",
    "--python-resolves={'onnx': '3rdparty/onnx/lock.txt'}",
    "--python-default-resolve=onnx",
    "--model-export-checkpoint-resolve=onnx",
    "--python-pip-version=latest",
    "--python-interpreter-constraints=['CPython==3.11.*']",
    "--python-bootstrap-search-path=['<PATH>', '<PYENV>']",
    "--test-report",
)
WRONG = 'tolerance={"max_abs": 1e-30}'


@pytest.fixture(scope="module")
def runner() -> RuleRunner:
    if "PANTS_PEX_CLI_VERSION" not in os.environ:
        pytest.skip("needs the pex CLI that ./pants builds")
    runner = RuleRunner(
        rules=[
            *register.rules(),
            *core_package.rules(),
            *core_run.rules(),
            *core_test.rules(),
            *distdir.rules(),
            QueryRule(Artifact, [ArtifactRequest]),
            QueryRule(ExportedModel, [ExportedModelRequest]),
            QueryRule(RunRequest, [ArtifactRunFieldSet]),
            QueryRule(Verification, [VerificationRequest]),
        ],
        target_types=register.target_types(),
    )
    builds = {
        "right": EXPORT.format(name="x", more=""),
        "again": "# The same spec.\n" + EXPORT.format(name="y", more=""),
        "wrong": EXPORT.format(name="x", more=WRONG),
        "skipped": EXPORT.format(name="x", more="skip_verify=True"),
        "broken": EXPORT.format(name="x", more='sample_inputs={"no_such_input": {"shape": [2]}}'),
    }
    runner.write_files(
        {
            "3rdparty/onnx/lock.txt": LOCK.read_text(encoding="utf-8"),
            "m/BUILD": CHECKPOINT,
            "m/config.json": CONFIG,
            **{f"{folder}/BUILD": build for folder, build in builds.items()},
        }
    )
    _set_options(runner)
    return runner


def _pex_cli() -> Mapping[str, str]:
    return {key: value for key, value in os.environ.items() if key.startswith("PANTS_PEX_CLI_")}


def _set_options(runner: RuleRunner, *more: str) -> None:
    runner.set_options([*OPTIONS, *more], env=_pex_cli(), env_inherit=PYTHON_BOOTSTRAP_ENV)


def _test(runner: RuleRunner, *specs: str, options: Tuple[str, ...] = ()) -> GoalRuleResult:
    return runner.run_goal_rule(
        Test,
        global_args=[*OPTIONS, *options],
        args=specs,
        env=_pex_cli(),
        env_inherit=PYTHON_BOOTSTRAP_ENV,
    )


def _package(runner: RuleRunner, spec: str) -> None:
    runner.run_goal_rule(
        Package,
        global_args=OPTIONS,
        args=[spec],
        env=_pex_cli(),
        env_inherit=PYTHON_BOOTSTRAP_ENV,
    )


def _suite(runner: RuleRunner, address: str) -> ElementTree.Element:
    report = Path(runner.build_root, "dist/test/reports", f"{address.replace(':', '.')}.xml")
    suite = ElementTree.parse(report).getroot().find("testsuite")
    assert suite is not None
    return suite


def _manifest(runner: RuleRunner, folder: str) -> Manifest:
    text = Path(runner.build_root, "dist", folder, "manifest.json").read_text(encoding="utf-8")
    return Manifest.from_json(text)


def test_an_artifact_says_that_it_passed_and_with_which_bounds(runner: RuleRunner) -> None:
    _package(runner, "right:x")
    record = _manifest(runner, "right/x").verification
    assert record.status == "passed"
    assert 0 < record.tolerance["max_abs"] < 0.1
    assert not Path(runner.build_root, "dist/right/x/probe.json").exists()


def test_a_wrong_artifact_is_not_handed_out(runner: RuleRunner) -> None:
    """By bounds that ONNX Runtime and torch don't meet in float32; the old artifact stays."""
    runner.write_files({"changed/BUILD": EXPORT.format(name="x", more="")})
    _package(runner, "changed:x")
    folder = Path(runner.build_root, "dist/changed/x")
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    runner.write_files({"changed/BUILD": EXPORT.format(name="x", more=WRONG)})
    with pytest.raises(ExecutionError) as caught:
        _package(runner, "changed:x")
    message = str(caught.value)
    assert re.search(
        r"ReportedFailure: changed:x: .*`model`.* "
        r"Full report: dist/verification/changed\.x/report\.txt",
        message,
    )
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before
    report = Path(runner.build_root, "dist/verification/changed.x/report.txt")
    assert "model" in report.read_text(encoding="utf-8")

    runner.write_files({"changed/BUILD": EXPORT.format(name="x", more="")})
    _package(runner, "changed:x")
    assert not report.exists()


def test_skip_verify_is_recorded(runner: RuleRunner) -> None:
    _package(runner, "skipped:x")
    record = _manifest(runner, "skipped/x").verification
    assert (record.status, record.tolerance) == ("skipped", {})


def test_a_right_artifact_passes_its_test(runner: RuleRunner) -> None:
    result = _test(runner, "right:x", options=("--test-output=all",))
    assert result.exit_code == 0
    assert "✓ right:x succeeded" in result.stderr
    suite = _suite(runner, "right:x")
    assert suite.get("name") == "right:x"
    assert int(suite.get("tests", "0")) > 0
    assert (suite.get("failures"), suite.get("errors")) == ("0", "0")
    assert {case.get("classname") for case in suite.iter("testcase")} == {"right:x"}
    report = Path(runner.build_root, "dist/test/right.x")
    assert {path.name for path in report.iterdir()} >= {"report.json", "report.txt"}


def test_a_wrong_artifact_fails_its_test_and_no_other(runner: RuleRunner) -> None:
    result = _test(runner, "wrong:x", "right:x", "skipped:x", "broken:x")
    assert result.exit_code == 1
    for line in ("✕ wrong:x failed", "✕ broken:x failed", "✓ right:x succeeded"):
        assert line in result.stderr
    assert "skipped:x" not in result.stderr
    suite = _suite(runner, "wrong:x")
    assert int(suite.get("failures", "0")) > 0

    broken = _suite(runner, "broken:x").find("testcase/error")
    assert broken is not None and "no_such_input" in broken.get("message", "")
    skipped = _suite(runner, "skipped:x")
    assert [skipped.get(count) for count in ("tests", "skipped")] == ["1", "1"]


def test_equal_specs_share_one_export_and_one_verification(runner: RuleRunner) -> None:
    _set_options(runner)
    addresses = (Address("right", target_name="x"), Address("again", target_name="y"))
    # The same process has the same metadata, its time in milliseconds among it.
    exports = [
        runner.request(ExportedModel, [ExportedModelRequest(address)]) for address in addresses
    ]
    assert exports[0].metadata == exports[1].metadata
    other = runner.request(ExportedModel, [ExportedModelRequest(Address("wrong", target_name="x"))])
    assert other.metadata == exports[0].metadata
    first, second = (
        runner.request(Verification, [VerificationRequest(address)]) for address in addresses
    )
    assert first.metadata == second.metadata
    assert (first.failure, first.report) == (None, second.report)


def test_force_runs_the_verification_and_not_the_export(runner: RuleRunner) -> None:
    _set_options(runner)
    address = Address("right", target_name="x")
    export = runner.request(ExportedModel, [ExportedModelRequest(address)])
    runner.request(Verification, [VerificationRequest(address)])
    result = _test(runner, "right:x", options=("--test-force",))
    # Neither `memoized` nor `cached locally`.
    assert re.search(r"✓ right:x succeeded in [0-9.]+s\.", result.stderr)
    _set_options(runner)
    again = runner.request(ExportedModel, [ExportedModelRequest(address)])
    assert again.metadata.total_elapsed_ms == export.metadata.total_elapsed_ms


def test_run_starts_the_runtime_on_the_artifact(runner: RuleRunner) -> None:
    _set_options(runner)
    address = Address("right", target_name="x")
    field_set = ArtifactRunFieldSet.create(runner.get_target(address))
    request = runner.request(RunRequest, [field_set])
    artifact = runner.request(Artifact, [ArtifactRequest(address)])
    # Mounted and not copied: what is in `digest` is written for each run.
    assert dict(request.immutable_input_digests or {}) == {"artifact": artifact.digest}
    assert request.args[1:] == ("-m", "model_export.runtime", "{chroot}/artifact")
    assert _run(runner, request, "--help") == 0
    assert _run(runner, request, "--no-such-option") != 0


def _run(runner: RuleRunner, request: RunRequest, argument: str) -> int:
    """What `pants run` does with a request, for a user with a PYTHONPATH of their own."""
    with mock_console(runner.options_bootstrapper):
        result = runner.run_interactive_process(
            InteractiveProcess(
                argv=(*request.args, argument),
                env={"PYTHONPATH": "/nowhere", **request.extra_env},
                input_digest=request.digest,
                run_in_workspace=True,
                immutable_input_digests=request.immutable_input_digests,
                append_only_caches=request.append_only_caches,
            )
        )
    return result.exit_code


def test_a_wrong_artifact_does_not_run(runner: RuleRunner) -> None:
    _set_options(runner)
    field_set = ArtifactRunFieldSet.create(runner.get_target(Address("wrong", target_name="x")))
    with pytest.raises(ExecutionError, match="wrong:x: .* Full report: `pants test wrong:x`"):
        runner.request(RunRequest, [field_set])


def test_an_artifact_runs_without_torch_where_it_can() -> None:
    known = ("onnx", "openvino", "serve-onnx")
    assert runtime_resolve("onnx", "my-onnx", known) == "serve-onnx"
    assert runtime_resolve("openvino", None, known) == "openvino"
    assert runtime_resolve("openvino", "my-openvino", known) == "my-openvino"
    assert runtime_resolve("executorch", None, known) == "executorch"
