"""What Pants loads: `backend_packages = ["model_export.plugin"]`."""

from __future__ import annotations

from typing import Iterable, List, Type

from pants.backend.python.util_rules import pex
from pants.engine.target import Target

from model_export.plugin import (
    adapters,
    artifacts,
    buildability,
    calibration_files,
    checkpoint_folders,
    checkpoint_lookup,
    export_settings,
    exports,
    gguf_conversions,
    hub_checkpoints,
    hub_locks,
    input_files,
    locked_resolves,
    model_checkpoints,
    named_files,
    named_targets,
    process_sources,
    processes,
    sample_files,
    verifications,
    wheel_files,
    wheel_files_target,
)
from model_export.plugin.checkpoint_types import (
    LocalCheckpointTarget,
    RandomCheckpointTarget,
    WheelCheckpointTarget,
)
from model_export.plugin.goals import dependents, lock_checkpoints, package, package_dist, run, test
from model_export.plugin.target_types import ExportModelTarget
from model_export.plugin.wheel_files_target import WheelFilesTarget


def target_types() -> List[Type[Target]]:
    return [
        ExportModelTarget,
        LocalCheckpointTarget,
        RandomCheckpointTarget,
        WheelCheckpointTarget,
        WheelFilesTarget,
    ]


def rules() -> Iterable[object]:
    package_dist.install_package_goal()
    return [
        *adapters.rules(),
        *artifacts.rules(),
        *buildability.rules(),
        *calibration_files.rules(),
        *checkpoint_folders.rules(),
        *checkpoint_lookup.rules(),
        *dependents.rules(),
        *export_settings.rules(),
        *exports.rules(),
        *gguf_conversions.rules(),
        *hub_checkpoints.rules(),
        *hub_locks.rules(),
        *input_files.rules(),
        *lock_checkpoints.rules(),
        *locked_resolves.rules(),
        *model_checkpoints.rules(),
        *named_files.rules(),
        *named_targets.rules(),
        *package.rules(),
        *pex.rules(),
        *process_sources.rules(),
        *processes.rules(),
        *run.rules(),
        *sample_files.rules(),
        *test.rules(),
        *verifications.rules(),
        *wheel_files.rules(),
        *wheel_files_target.rules(),
    ]
