"""Makes `package` write artifacts through `plugin/dist.py`, and all else as it always did.

Symptom, Pants 2.17.1 (`pants.core.goals.package.package_asset`): every `package` deletes what the
targets had in `dist/` and writes it anew, changed or not. For a model that is seconds on each run,
and a kill in the middle leaves a folder that is there and incomplete. The goal has no hook for it
and a goal can't have two rules, so `install_package_goal` puts ours into the place of that rule
before Pants builds its scheduler. `test_upstream_still_rewrites` fails once upstream no longer
rewrites; this file can go if the goal by then can leave targets out, too.
"""

from __future__ import annotations

import logging
import shutil
from pathlib import Path, PurePath
from typing import List, Sequence, Tuple

from pants.base.build_environment import get_buildroot
from pants.core.goals import package as core_package
from pants.core.goals.package import (
    BuiltPackage,
    BuiltPackageArtifact,
    EnvironmentAwarePackageRequest,
    Package,
    PackageFieldSet,
)
from pants.core.util_rules.distdir import DistDir
from pants.core.util_rules.environments import EnvironmentNameRequest
from pants.engine.environment import EnvironmentName
from pants.engine.fs import Digest, MergeDigests, Workspace
from pants.engine.rules import Get, MultiGet, goal_rule
from pants.engine.target import (
    NoApplicableTargetsBehavior,
    TargetRootsToFieldSets,
    TargetRootsToFieldSetsRequest,
)

from model_export.plugin.artifacts import VerificationFailed
from model_export.plugin.buildability import Buildability, BuildabilityRequest
from model_export.plugin.dist import ModelArtifact, check_apart, install, is_current, staging
from model_export.plugin.goals.package import ExportFieldSet
from model_export.plugin.named_targets import TargetsNamed, TargetsNamedRequest, is_named
from model_export.plugin.verifications import REPORT_TEXT

logger = logging.getLogger(__name__)

REPORTS_FOLDER = "verification"
# Of a rule: its body, and what that asks the engine for.
REPLACED = ("func", "input_gets")


class ReportedFailure(Exception):
    """A failed verification whose report lies in `dist/`."""

    def __init__(self, failed: VerificationFailed, report: PurePath) -> None:
        super().__init__(f"{failed.address}: {failed.failure} Full report: {report}")


async def _buildable(
    field_sets: Sequence[PackageFieldSet],
) -> Tuple[PackageFieldSet, ...]:
    """Those that this machine can build; those that were named stay, and fail by themselves."""
    named = await Get(TargetsNamed, TargetsNamedRequest())
    asked = [
        field_set
        for field_set in field_sets
        if isinstance(field_set, ExportFieldSet) and not is_named(named.specs, field_set.address)
    ]
    environments = await MultiGet(
        Get(
            EnvironmentName,
            EnvironmentNameRequest,
            EnvironmentNameRequest.from_field_set(field_set),
        )
        for field_set in asked
    )
    answers = await MultiGet(
        Get(
            Buildability,
            {
                BuildabilityRequest(field_set.address): BuildabilityRequest,
                environment: EnvironmentName,
            },
        )
        for field_set, environment in zip(asked, environments)
    )
    left_out = set()
    for field_set, answer in zip(asked, answers):
        if answer.obstacle is not None:
            logger.warning(f"{field_set.address}: left out: {answer.obstacle}")
            left_out.add(field_set)
    return tuple(field_set for field_set in field_sets if field_set not in left_out)


@goal_rule
async def package_into_dist(workspace: Workspace, dist_dir: DistDir) -> Package:
    """The `package` goal: as Pants has it, but for artifacts that are models."""
    targets = await Get(
        TargetRootsToFieldSets,
        TargetRootsToFieldSetsRequest(
            PackageFieldSet,
            goal_description="the `package` goal",
            no_applicable_targets_behavior=NoApplicableTargetsBehavior.warn,
        ),
    )
    field_sets = await _buildable(targets.field_sets)
    if not field_sets:
        return Package(exit_code=0)
    try:
        packages = await MultiGet(
            Get(BuiltPackage, EnvironmentAwarePackageRequest(field_set)) for field_set in field_sets
        )
    except VerificationFailed as failed:
        folder = dist_dir.relpath / REPORTS_FOLDER / failed.address.path_safe_spec
        workspace.write_digest(failed.report, path_prefix=str(folder))
        raise ReportedFailure(failed, folder / REPORT_TEXT) from failed
    models = [package for package in packages if _models(package)]
    others = [package for package in packages if not _models(package)]
    relpaths = [artifact.relpath for package in others for artifact in package.artifacts]
    other_relpaths = [relpath for relpath in relpaths if relpath]
    check_apart(
        [str(artifact.relpath) for package in models for artifact in _models(package)],
        other_relpaths,
    )
    if others:
        digest = await Get(Digest, MergeDigests(package.digest for package in others))
        workspace.write_digest(
            digest, path_prefix=str(dist_dir.relpath), clear_paths=other_relpaths
        )
        for package in others:
            for artifact in package.artifacts:
                _log(
                    artifact,
                    f"Wrote {dist_dir.relpath / artifact.relpath}" if artifact.relpath else "",
                )
    if models:
        dist = Path(get_buildroot(), dist_dir.relpath)
        _write_models(workspace, dist, dist_dir, models)
    for field_set in field_sets:  # What an earlier run said of it is no longer true.
        shutil.rmtree(
            Path(
                get_buildroot(),
                dist_dir.relpath,
                REPORTS_FOLDER,
                field_set.address.path_safe_spec,
            ),
            ignore_errors=True,
        )
    return Package(exit_code=0)


def _write_models(
    workspace: Workspace, dist: Path, dist_dir: DistDir, packages: List[BuiltPackage]
) -> None:
    artifacts = [(package, artifact) for package in packages for artifact in _models(package)]
    with staging(dist) as stage:
        for package, artifact in artifacts:
            if is_current(dist, artifact):
                _log(artifact, f"{dist_dir.relpath / str(artifact.relpath)} is up to date")
                continue
            workspace.write_digest(
                package.digest, path_prefix=str(dist_dir.relpath / stage.new.relative_to(dist))
            )
            install(dist, artifact, stage)
            _log(artifact, f"Wrote {dist_dir.relpath / str(artifact.relpath)}")


def _models(package: BuiltPackage) -> Tuple[ModelArtifact, ...]:
    return tuple(item for item in package.artifacts if isinstance(item, ModelArtifact))


def _log(artifact: BuiltPackageArtifact, first: str) -> None:
    lines = [first] if first else []
    lines.extend(str(line) for line in artifact.extra_log_lines)
    if lines:
        logger.info("\n".join(lines))


def install_package_goal() -> None:
    """Let Pants' `package` rule be ours; once is enough, again changes nothing."""
    theirs, ours = vars(core_package.package_asset)["rule"], vars(package_into_dist)["rule"]
    for field in REPLACED:
        object.__setattr__(theirs, field, getattr(ours, field))
