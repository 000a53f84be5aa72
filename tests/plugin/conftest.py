"""One RuleRunner for the tests that only read BUILD files: each writes into a folder of its own."""

from __future__ import annotations

import tempfile
from typing import Sequence, Type

import pytest
from pants.core.goals import package as core_package
from pants.core.target_types import FileTarget
from pants.core.target_types import rules as core_target_rules
from pants.core.util_rules import archive, distdir, source_files, system_binaries
from pants.engine.fs import Digest, DigestContents, DigestEntries
from pants.engine.internals.parametrize import Parametrize
from pants.engine.target import (
    DependenciesRequest,
    HydratedSources,
    HydrateSourcesRequest,
    Target,
    Targets,
)
from pants.testutil.rule_runner import PYTHON_BOOTSTRAP_ENV, QueryRule, RuleRunner

from model_export.plugin import register
from model_export.plugin.artifacts import Artifact, ArtifactRequest, VerifiedExport
from model_export.plugin.checkpoint_folders import CheckpointFolder, CheckpointRequest
from model_export.plugin.export_settings import ExportSettings, ExportSettingsRequest
from model_export.plugin.process_sources import (
    ExporterSourcesRequest,
    ModuleSourcesRequest,
    ProcessSources,
)

LOCK = "packaging==25.0 --hash=sha256:{}\n".format("0" * 64)
RESOLVES = ("dynamo", "onnx", "executorch", "openvino", "checkpoints")


def make_rule_runner(
    target_types: Sequence[Type[Target]] = (), queries: Sequence[QueryRule] = ()
) -> RuleRunner:
    """A runner with the plugin, and what a test adds to it."""
    runner = RuleRunner(
        rules=[
            *register.rules(),
            *archive.rules(),
            *core_package.rules(),
            *core_target_rules(),
            *distdir.rules(),
            *source_files.rules(),
            *system_binaries.rules(),
            QueryRule(Artifact, [ArtifactRequest]),
            QueryRule(Artifact, [VerifiedExport]),
            QueryRule(CheckpointFolder, [CheckpointRequest]),
            QueryRule(DigestContents, [Digest]),
            QueryRule(DigestEntries, [Digest]),
            QueryRule(ExportSettings, [ExportSettingsRequest]),
            QueryRule(HydratedSources, [HydrateSourcesRequest]),
            QueryRule(ProcessSources, [ExporterSourcesRequest]),
            QueryRule(ProcessSources, [ModuleSourcesRequest]),
            QueryRule(Targets, [DependenciesRequest]),
            *queries,
        ],
        target_types=[*register.target_types(), FileTarget, *target_types],
        objects={"parametrize": Parametrize},
    )
    resolves = {name: f"3rdparty/{name}/lock.txt" for name in RESOLVES}
    resolves["unhashed"] = "3rdparty/unhashed/lock.txt"
    resolves["absent"] = "3rdparty/absent/lock.txt"
    resolves["nightly"] = "3rdparty/nightly/lock.txt"
    runner.set_options(
        [
            "--python-enable-resolves",
            f"--python-resolves={resolves}",
            "--python-default-resolve=dynamo",
        ],
        env_inherit=PYTHON_BOOTSTRAP_ENV,
    )
    runner.write_files({f"3rdparty/{name}/lock.txt": LOCK for name in RESOLVES})
    runner.write_files(
        {
            "3rdparty/unhashed/lock.txt": LOCK + "torch==2.12.0\n",
            "3rdparty/nightly/requirements.in": "# Lock it: UV_INDEX=<another index> ./pants run "
            "3rdparty:compile_locks -- nightly\ntorch\n",
        },
    )
    return runner


@pytest.fixture(scope="session")
def rule_runner(tmp_path_factory: pytest.TempPathFactory) -> RuleRunner:
    """One whose build root has nothing beside it that others write to."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("pants")))
        return make_rule_runner()
