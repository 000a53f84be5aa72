"""Each process gets the sources it imports and no other: what it doesn't get can't re-run it."""

from __future__ import annotations

import importlib.resources
from pathlib import Path
from typing import Set

import pytest
from pants.engine.fs import Snapshot
from pants.option.global_options import GlobalOptions
from pants.testutil.rule_runner import RuleRunner

from model_export.plugin.process_sources import (
    ExporterSourcesRequest,
    ModuleSourcesRequest,
    ProcessSources,
    import_closure,
    runtime_modules,
    verifier_modules,
)
from model_export.spec import FORMATS

TORCH_FORMATS = ("dynamo", "executorch")


def _files(rule_runner: RuleRunner, request: object) -> Set[str]:
    sources = rule_runner.request(ProcessSources, [request])
    return set(rule_runner.request(Snapshot, [sources.digest]).files)


def test_an_export_gets_its_own_backend_only(rule_runner: RuleRunner) -> None:
    files = _files(rule_runner, ExporterSourcesRequest("onnx"))
    assert {
        "model_export/__init__.py",
        "model_export/spec.py",
        "model_export/manifest.py",
        "model_export/exporter/__main__.py",
        "model_export/exporter/backends/__init__.py",
        "model_export/exporter/backends/onnx/__init__.py",
    } <= files
    assert all(file.endswith(".py") for file in files)
    assert not any("/plugin/" in file or "/checkpoints/" in file for file in files)
    assert _backends(files) == {"onnx"}


def test_a_backend_brings_the_one_that_it_builds_on(rule_runner: RuleRunner) -> None:
    files = _files(rule_runner, ExporterSourcesRequest("executorch"))
    assert _backends(files) == {"dynamo", "executorch"}


def _backends(files: Set[str]) -> Set[str]:
    return {file.split("/")[3] for file in files if "/backends/" in file} - {"__init__.py"}


def test_a_checkpoint_process_gets_what_its_module_imports(rule_runner: RuleRunner) -> None:
    gguf = _files(rule_runner, ModuleSourcesRequest("model_export.checkpoints.gguf"))
    assert {"model_export/checkpoints/__init__.py", "model_export/checkpoints/gguf.py"} <= gguf
    assert "model_export/checkpoints/random_weights.py" not in gguf
    assert not any("/plugin/" in file or "/backends/" in file for file in gguf)


def test_what_only_a_type_checker_imports_stays_out(tmp_path: Path) -> None:
    for name in ("wanted", "checked", "otherwise", "qualified"):
        (tmp_path / f"{name}.py").write_text("")
    (tmp_path / "__init__.py").write_text("")
    (tmp_path / "start.py").write_text(
        "import typing\n"
        "from typing import TYPE_CHECKING\n"
        "from model_export import wanted\n"
        "if TYPE_CHECKING:\n"
        "    from model_export import checked\n"
        "else:\n"
        "    from model_export import otherwise\n"
        "if typing.TYPE_CHECKING:\n"
        "    import model_export.qualified\n"
    )
    found = import_closure(tmp_path, "model_export.start")
    assert found == ["__init__.py", "otherwise.py", "start.py", "wanted.py"]


def test_the_text_layer_re_verifies_nothing(rule_runner: RuleRunner) -> None:
    request = ModuleSourcesRequest("model_export.verifier.__main__", verifier_modules("onnx"))
    assert not any("chat_template" in file for file in _files(rule_runner, request))


@pytest.mark.parametrize("export_format", FORMATS)
def test_a_verification_gets_what_loads_its_format(
    rule_runner: RuleRunner, export_format: str
) -> None:
    module = "model_export.verifier.__main__"
    files = _files(rule_runner, ModuleSourcesRequest(module, verifier_modules(export_format)))
    own = {
        f"model_export/runtime/graphs/{export_format}.py",
        f"model_export/runtime/decoders/cached/{export_format}.py",
        f"model_export/verifier/structure/{export_format}.py",
    }
    assert own <= files
    assert not any("/plugin/" in file or "/exporter/backends/" in file for file in files)
    if export_format in ("onnx", "openvino"):
        torch_formats = {f"model_export/runtime/graphs/{name}.py" for name in TORCH_FORMATS}
        assert not torch_formats & files


@pytest.mark.parametrize("export_format", FORMATS)
def test_a_run_gets_no_verifier_and_no_exporter(
    rule_runner: RuleRunner, export_format: str
) -> None:
    module = "model_export.runtime.__main__"
    files = _files(rule_runner, ModuleSourcesRequest(module, runtime_modules(export_format)))
    assert f"model_export/runtime/graphs/{export_format}.py" in files
    assert not any("/verifier/" in file or "/exporter/" in file for file in files)


def test_import_closure_follows_each_form_of_import(tmp_path: Path) -> None:
    files = {
        "__init__.py": "",
        "start.py": (
            "import os\nfrom model_export.a import thing\nfrom model_export import b\n"
            "def later():\n    import model_export.c.d\n"
        ),
        "a.py": "from model_export.e import x",
        "b.py": "",
        "c/__init__.py": "",
        "c/d.py": "import model_export.start",
        "c/unused.py": "",
        "e/__init__.py": "from model_export.missing_name import y",
    }
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    assert import_closure(tmp_path, "model_export.start") == [
        "__init__.py",
        "a.py",
        "b.py",
        "c/__init__.py",
        "c/d.py",
        "e/__init__.py",
        "start.py",
    ]


def test_import_closure_of_a_module_that_is_not_there() -> None:
    package = importlib.resources.files("model_export")
    with pytest.raises(FileNotFoundError, match="no module model_export.checkpoints.nothing"):
        import_closure(package, "model_export.checkpoints.nothing")


def test_the_daemon_restarts_on_an_edit_of_what_processes_get() -> None:
    """The rules read sources once a daemon: this holds because `pythonpath` is watched."""
    runner = RuleRunner()
    runner.create_dir("src")
    runner.set_options([f"--pythonpath={runner.build_root}/src"])
    options = runner.options_bootstrapper.bootstrap_options.for_global_scope()
    globs = GlobalOptions.compute_pantsd_invalidation_globs(runner.build_root, options)
    assert "src/**" in globs
