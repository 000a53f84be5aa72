"""`run` for `export_model`: the artifact in the runtime that an app would load it with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterable, Optional

from pants.backend.python.subsystems.setup import PythonSetup
from pants.backend.python.util_rules.pex import VenvPex
from pants.backend.python.util_rules.pex_environment import PexEnvironment
from pants.core.goals.run import RunFieldSet, RunInSandboxBehavior, RunRequest
from pants.core.util_rules.environments import EnvironmentField
from pants.engine.fs import Digest, MergeDigests
from pants.engine.rules import Get, MultiGet, collect_rules, rule
from pants.util.frozendict import FrozenDict
from pants.util.logging import LogLevel

from model_export.plugin.artifacts import Artifact, ArtifactRequest
from model_export.plugin.delegates import default_resolve
from model_export.plugin.export_settings import ExportSettings, ExportSettingsRequest
from model_export.plugin.locked_resolves import (
    LockedResolve,
    LockedResolveRequest,
    ProcessVenvRequest,
)
from model_export.plugin.process_sources import (
    ModuleSourcesRequest,
    ProcessSources,
    runtime_modules,
)
from model_export.plugin.target_types import ConfigField, ExportResolveField, ModelField

_RUNTIME_MODULE = "model_export.runtime"
_ARTIFACT = "artifact"
_SERVE_RESOLVES = {"onnx": "serve-onnx", "openvino": "serve-openvino"}


@dataclass(frozen=True)
class ArtifactRunFieldSet(RunFieldSet):
    required_fields = (ModelField, ConfigField)
    run_in_sandbox_behavior = RunInSandboxBehavior.RUN_REQUEST_HERMETIC

    resolve: ExportResolveField
    environment: EnvironmentField


def runtime_resolve(export_format: str, exported_in: Optional[str], known: Iterable[str]) -> str:
    """The resolve that an artifact runs in: without torch where the repository has such a one."""
    slim = _SERVE_RESOLVES.get(export_format)
    if slim is not None and slim in known:
        return slim
    return exported_in or export_format


@rule(desc="Run an artifact", level=LogLevel.DEBUG)
async def run_artifact(
    field_set: ArtifactRunFieldSet, pex_environment: PexEnvironment, python_setup: PythonSetup
) -> RunRequest:
    settings = await Get(ExportSettings, ExportSettingsRequest(field_set.address))
    export_format = settings.spec.export_format
    exported_in = field_set.resolve.value or default_resolve(settings.spec)
    resolve = runtime_resolve(export_format, exported_in, python_setup.resolves)
    # Before the export, which takes minutes.
    await Get(LockedResolve, LockedResolveRequest(resolve, field_set.address))
    artifact, venv, sources = await MultiGet(
        Get(Artifact, ArtifactRequest(field_set.address)),
        Get(VenvPex, ProcessVenvRequest(resolve)),
        Get(
            ProcessSources,
            ModuleSourcesRequest(f"{_RUNTIME_MODULE}.__main__", runtime_modules(export_format)),
        ),
    )
    caches = pex_environment.in_sandbox(working_directory=None).append_only_caches
    return RunRequest(
        digest=await Get(Digest, MergeDigests((venv.digest, sources.digest))),
        args=(
            f"{{chroot}}/{venv.python.argv0}",
            "-m",
            _RUNTIME_MODULE,
            f"{{chroot}}/{_ARTIFACT}",
        ),
        extra_env={
            "PYTHONPATH": "{chroot}",
            # The process starts in the root of the repository, which nothing is imported from.
            "PYTHONSAFEPATH": "1",
        },
        # Weights are linked from there, once a daemon, and not written again for each run.
        immutable_input_digests={_ARTIFACT: artifact.digest},
        append_only_caches=FrozenDict({**caches, **(venv.append_only_caches or {})}),
    )


def rules() -> Iterable[object]:
    return [*collect_rules(), *ArtifactRunFieldSet.rules()]
