"""What runs: a wheel unpacked out of its lock, and a process that fails with one line."""

from __future__ import annotations

import os

import pytest
from pants.engine.addresses import Address
from pants.engine.fs import DigestContents
from pants.engine.internals.scheduler import ExecutionError
from pants.engine.rules import QueryRule
from pants.testutil.rule_runner import PYTHON_BOOTSTRAP_ENV, RuleRunner

from model_export.plugin import register
from model_export.plugin.artifacts import Artifact, ArtifactRequest
from model_export.plugin.checkpoint_folders import CheckpointFolder, CheckpointRequest
from model_export.plugin.hash_lock import find_locked, parse_hash_lock
from model_export.plugin.processes import ModuleOutput, ModuleProcess
from model_export.plugin.wheel_files import WheelFiles, WheelFilesRequest

# Small wheels of one module each; hashes as PyPI has them.
SIX = "six==1.17.0 --hash=sha256:4721f391ed90541fddacab5acf947aa0d3dc7d27b2e1e8eda2be8970586c3274\n"
LOCAL = 'local_checkpoint(name="ckpt", sources=["config.json", "model.safetensors"])\n'


@pytest.fixture(scope="module")
def runner() -> RuleRunner:
    if "PANTS_PEX_CLI_VERSION" not in os.environ:
        pytest.skip("needs the pex CLI that ./pants builds")
    runner = RuleRunner(
        rules=[
            *register.rules(),
            QueryRule(Artifact, [ArtifactRequest]),
            QueryRule(CheckpointFolder, [CheckpointRequest]),
            QueryRule(ModuleOutput, [ModuleProcess]),
            QueryRule(WheelFiles, [WheelFilesRequest]),
        ],
        target_types=register.target_types(),
    )
    runner.write_files({"lock.txt": SIX, "other.txt": SIX + SIX.replace("six", "seven")})
    runner.set_options(
        [
            "--python-enable-resolves",
            "--python-resolves={'dynamo': 'lock.txt', 'checkpoints': 'lock.txt'}",
            "--python-default-resolve=dynamo",
            "--python-pip-version=latest",
            "--python-interpreter-constraints=['CPython>=3.9,<3.12']",
            "--python-bootstrap-search-path=['<PATH>', '<PYENV>']",
        ],
        env={key: value for key, value in os.environ.items() if key.startswith("PANTS_PEX_CLI_")},
        env_inherit=PYTHON_BOOTSTRAP_ENV,
    )
    return runner


def _files_of(runner: RuleRunner, lock: str, path: str) -> WheelFiles:
    entries = find_locked(parse_hash_lock("lock.txt", lock), "six", "checkpoints")
    address = Address("m", target_name="ckpt")
    return runner.request(WheelFiles, [WheelFilesRequest(entries, path, "checkpoints", address)])


def test_one_file_of_a_wheel(runner: RuleRunner) -> None:
    files = _files_of(runner, SIX, "six.py")
    (content,) = runner.request(DigestContents, [files.digest])
    assert content.path == "six.py"
    assert b'__version__ = "1.17.0"' in content.content


def test_a_folder_of_a_wheel(runner: RuleRunner) -> None:
    files = _files_of(runner, SIX, "six-1.17.0.dist-info")
    names = {content.path for content in runner.request(DigestContents, [files.digest])}
    assert {"METADATA", "WHEEL"} <= names


def test_a_path_that_the_wheel_does_not_have(runner: RuleRunner) -> None:
    with pytest.raises(
        ExecutionError, match="m:ckpt: `path` is 'six/model', which the wheel doesn"
    ):
        _files_of(runner, SIX, "six/model")


def test_a_wrong_hash_is_refused(runner: RuleRunner) -> None:
    with pytest.raises(
        ExecutionError, match="(?s)six.*THESE PACKAGES DO NOT MATCH THE HASHES|hash"
    ):
        _files_of(runner, SIX.replace("sha256:4721", "sha256:0000"), "six.py")


def test_a_failing_export_starts_with_its_address_and_last_line(runner: RuleRunner) -> None:
    runner.write_files(
        {
            "m/BUILD": LOCAL
            + 'export_model(name="x", model=":ckpt", config={"export_format": "dynamo"})\n',
            "m/config.json": '{"architectures": ["Qwen3ForCausalLM"]}',
            "m/model.safetensors": "",
        }
    )
    with pytest.raises(ExecutionError) as caught:
        runner.request(Artifact, [ArtifactRequest(Address("m", target_name="x"))])
    message = str(caught.value)
    # This resolve has no torch: the exporter really starts, and really fails.
    assert "ProcessFailed: m:x: The export process failed with ModuleNotFoundError" in message
    assert "Traceback (most recent call last)" in message


def test_a_process_that_hangs_is_ended(runner: RuleRunner) -> None:
    hangs = ModuleProcess(
        module="timeit",
        argv=("import time; time.sleep(600)",),
        resolve="dynamo",
        inputs=(),
        outputs=("report",),
        description="Verify m:x",
        address=Address("m", target_name="x"),
        timeout_seconds=1,
    )
    with pytest.raises(
        ExecutionError,
        match=r"ProcessTimedOut: m:x: The process took longer than 1 s and was ended\. Raise the "
        r"target's `timeout`, or \[test\]\.timeout_maximum where that is lower\.",
    ):
        runner.request(ModuleOutput, [hangs])
