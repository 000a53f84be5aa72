"""From the `model` field to the target that supplies the checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterable, Optional

from pants.base.specs import DirLiteralSpec, RawSpecsWithoutFileOwners
from pants.engine.addresses import Address, Addresses, UnparsedAddressInputs
from pants.engine.fs import GlobMatchErrorBehavior
from pants.engine.rules import Get, collect_rules, rule
from pants.engine.target import (
    FieldSet,
    InferDependenciesRequest,
    InferredDependencies,
    UnexpandedTargets,
    WrappedTarget,
    WrappedTargetRequest,
)
from pants.engine.unions import UnionRule
from pants.util.logging import LogLevel

from model_export.checkpoint_lock import LOCK_FILE, LockedCheckpoint
from model_export.plugin.checkpoint_types import CheckpointDependenciesField
from model_export.plugin.field_errors import SpecError, TargetError, nearest
from model_export.plugin.references import is_address
from model_export.plugin.target_types import ExportDependenciesField, ModelField


@dataclass(frozen=True)
class CheckpointAddressRequest:
    """The `model` of the target at `owner`, or another field of it that names a checkpoint."""

    model: str
    owner: Address
    field: str = "model"


@dataclass(frozen=True)
class CheckpointAddress:
    """The address of a checkpoint; None for a hub id."""

    address: Optional[Address]


@rule(desc="Find a checkpoint", level=LogLevel.DEBUG)
async def checkpoint_address(request: CheckpointAddressRequest) -> CheckpointAddress:
    if not is_address(request.model):
        return CheckpointAddress(None)
    origin = f"the `{request.field}` field of {request.owner}"
    found = await Get(
        Addresses,
        UnparsedAddressInputs(
            [request.model],
            owning_address=request.owner,
            description_of_origin=origin,
            skip_invalid_addresses=True,
        ),
    )
    here = found[0].spec_path if found else ""
    neighbours = await Get(
        UnexpandedTargets,
        RawSpecsWithoutFileOwners(
            dir_literals=(DirLiteralSpec(here),),
            description_of_origin=origin,
            unmatched_glob_behavior=GlobMatchErrorBehavior.ignore,
        ),
    )
    exists = found and any(
        target.address.target_name == found[0].target_name for target in neighbours
    )
    if not exists:
        # Of the same folder only: a mistake in a BUILD file elsewhere would hide this one.
        known = [
            target.address.spec
            for target in neighbours
            if target.has_field(CheckpointDependenciesField)
        ]
        asked = request.model
        if asked.startswith(":"):
            asked = f"{request.owner.spec_path}{asked}"
        raise TargetError(
            request.owner,
            SpecError(
                request.field,
                f"is {request.model!r}, and there is no such target",
                nearest(asked, known),
            ),
        )
    wrapped = await Get(WrappedTarget, WrappedTargetRequest(found[0], origin))
    if not wrapped.target.has_field(CheckpointDependenciesField):
        raise TargetError(
            request.owner,
            SpecError(
                request.field,
                f"is {request.model!r}, a `{wrapped.target.alias}` target, which is no checkpoint",
                "Name a `wheel_checkpoint`, `local_checkpoint` or `random_checkpoint`",
            ),
        )
    return CheckpointAddress(found[0])


@dataclass(frozen=True)
class ModelFieldSet(FieldSet):
    required_fields = (ModelField, ExportDependenciesField)

    model: ModelField


class InferCheckpoint(InferDependenciesRequest):
    infer_from = ModelFieldSet


@rule(desc="Infer the checkpoint of an export", level=LogLevel.DEBUG)
async def infer_checkpoint(request: InferCheckpoint) -> InferredDependencies:
    fields = request.field_set
    found = await Get(
        CheckpointAddress, CheckpointAddressRequest(fields.model.value, fields.address)
    )
    return InferredDependencies([] if found.address is None else [found.address])


def unlocked_hub_id(model: str, owner: Address, field: str = "model") -> TargetError:
    """The error for a hub id without an entry in the checkpoint lock."""
    return TargetError(
        owner,
        SpecError(
            field,
            f"{model!r} isn't locked: hub ids are pinned in {LOCK_FILE}, which has no entry for it",
            f"Lock it: ./pants lock-checkpoints {owner.spec}",
        ),
    )


def outdated_hub_id(locked: LockedCheckpoint, owner: Address, field: str = "model") -> TargetError:
    """The error for a hub id whose entry was made for other fields than the target has."""
    return TargetError(
        owner,
        SpecError(
            field,
            f"{locked.repo!r} is locked in {LOCK_FILE} for another `include`, `exclude`, "
            "`gguf_file`, `allow_pickle` or `trust_remote_code`",
            f"Lock it anew, at the same commit: ./pants lock-checkpoints {owner.spec}",
        ),
    )


def rules() -> Iterable[object]:
    return [*collect_rules(), UnionRule(InferDependenciesRequest, InferCheckpoint)]
