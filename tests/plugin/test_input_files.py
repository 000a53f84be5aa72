"""From `inputs_from` to the files that the export process gets."""

from __future__ import annotations

import pytest
from pants.backend.python.target_types import PythonSourcesGeneratorTarget, PythonSourceTarget
from pants.backend.python.target_types_rules import rules as python_target_rules
from pants.engine.addresses import Address
from pants.engine.fs import Snapshot
from pants.engine.internals.graph import Owners, OwnersRequest
from pants.engine.internals.scheduler import ExecutionError
from pants.engine.rules import QueryRule
from pants.engine.target import Dependencies, DependenciesRequest, Targets
from pants.testutil.rule_runner import RuleRunner

from model_export.plugin.input_files import InputsFile, InputsFileRequest
from plugin.conftest import make_rule_runner

EXPORT = """\
local_checkpoint(name="ckpt", sources=["config.json"])
export_model(
    name="x", model=":ckpt", config={{"export_format": "onnx"}}, inputs_from={!r}
)
"""
IMPORTS = "from lib.shared import SIZE\n\n\ndef sample_inputs(model, tokenizer):\n    return SIZE\n"


@pytest.fixture(scope="module")
def runner() -> RuleRunner:
    runner = make_rule_runner(
        [PythonSourcesGeneratorTarget, PythonSourceTarget],
        [
            *python_target_rules(),
            QueryRule(InputsFile, [InputsFileRequest]),
            QueryRule(Owners, [OwnersRequest]),
        ],
    )
    runner.set_options(
        [
            "--python-enable-resolves",
            "--python-resolves={'onnx': '3rdparty/onnx/lock.txt'}",
            "--python-default-resolve=onnx",
            "--source-root-patterns=['/src', '/']",
            "--python-infer-unowned-dependency-behavior=ignore",
            "--python-infer-use-rust-parser",
        ],
        env_inherit={"PATH", "PYENV_ROOT", "HOME"},
    )
    return runner


def _read(runner: RuleRunner, value: str, folder: str) -> InputsFile:
    return runner.request(
        InputsFile, [InputsFileRequest(value, "onnx", Address(folder, target_name="x"))]
    )


def _files(runner: RuleRunner, found: InputsFile) -> set[str]:
    return set(runner.request(Snapshot, [found.digest]).files)


def test_a_file_beside_the_build_file(runner: RuleRunner) -> None:
    runner.write_files({"plain/BUILD": EXPORT.format(":inputs.py"), "plain/inputs.py": "a = 1\n"})
    for value in (":inputs.py", "inputs.py"):
        found = _read(runner, value, "plain")
        assert found.path == "plain/inputs.py"
        assert _files(runner, found) == {"plain/inputs.py"}
        assert found.source_roots == (".",)
    before = found.digest
    runner.write_files({"plain/inputs.py": "a = 2\n"})
    assert _read(runner, ":inputs.py", "plain").digest != before


def test_the_export_is_found_by_its_file(runner: RuleRunner) -> None:
    """As by `--changed-since`, also where no other target has the file."""
    runner.write_files({"owned/BUILD": EXPORT.format(":inputs.py"), "owned/inputs.py": ""})
    owners = runner.request(Owners, [OwnersRequest(("owned/inputs.py",))])
    assert [address.spec for address in owners] == ["owned:x"]


@pytest.mark.parametrize("value", [":inputs.py", ":own"])
def test_what_the_file_imports_comes_along(runner: RuleRunner, value: str) -> None:
    folder = f"src/by_{value.strip(':').replace('.', '_')}"
    runner.write_files(
        {
            f"{folder}/BUILD": 'python_source(name="own", source="inputs.py")\n'
            + EXPORT.format(value),
            f"{folder}/inputs.py": IMPORTS,
            "src/lib/BUILD": "python_sources()\n",
            "src/lib/__init__.py": "",
            "src/lib/shared.py": "SIZE = 2\n",
            "src/lib/other.py": "",
        }
    )
    found = _read(runner, value, folder)
    assert found.path == f"{folder}/inputs.py"
    assert _files(runner, found) == {
        f"{folder}/inputs.py",
        "src/lib/__init__.py",
        "src/lib/shared.py",
    }
    assert found.source_roots == ("src",)
    target = runner.get_target(Address(folder, target_name="x"))
    needed = runner.request(Targets, [DependenciesRequest(target[Dependencies])])
    assert {item.address.spec for item in needed} == {f"{folder}:ckpt", f"{folder}:own"}


@pytest.mark.parametrize(
    ("folder", "value", "message"),
    [
        (
            "gone",
            ":input.py",
            "gone:x: `inputs_from` is ':input.py', and there is no file gone/input.py. "
            "Did you mean 'inputs.py'?",
        ),
        (
            "checkpoint/own",
            ":inputs.py",
            "`inputs_from` is checkpoint/own/inputs.py, and the export process has a folder "
            "'checkpoint' of its own.",
        ),
        ("many", ":all", "`inputs_from` is ':all', which has many/a.py, many/b.py. Name a"),
        ("none", ":ckpt", "`inputs_from` is ':ckpt', which has no Python file. Name a"),
    ],
)
def test_files_that_cannot_be_used(
    runner: RuleRunner, folder: str, value: str, message: str
) -> None:
    runner.write_files(
        {
            f"{folder}/BUILD": EXPORT.format(value)
            + 'python_sources(name="all", sources=["a.py", "b.py"])\n',
            f"{folder}/inputs.py": "",
            f"{folder}/a.py": "",
            f"{folder}/b.py": "",
        }
    )
    with pytest.raises(ExecutionError) as caught:
        _read(runner, value, folder)
    assert message in str(caught.value)
