"""The checkpoint of an `export_model` target: of its hub id, or of the target that it names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterable

from pants.engine.addresses import Address
from pants.engine.engine_aware import EngineAwareParameter
from pants.engine.rules import Get, collect_rules, rule
from pants.engine.target import WrappedTarget, WrappedTargetRequest
from pants.util.logging import LogLevel

from model_export.plugin.checkpoint_folders import CheckpointFolder, CheckpointRequest
from model_export.plugin.checkpoint_lookup import CheckpointAddress, CheckpointAddressRequest
from model_export.plugin.hub_checkpoints import HubCheckpointRequest
from model_export.plugin.hub_fields import hub_ask
from model_export.plugin.target_types import ModelField


@dataclass(frozen=True)
class ModelCheckpointRequest(EngineAwareParameter):
    """The checkpoint that the `export_model` target at `address` exports."""

    address: Address

    def debug_hint(self) -> str:
        return self.address.spec


@rule(desc="Make the checkpoint of an export", level=LogLevel.DEBUG)
async def model_checkpoint(request: ModelCheckpointRequest) -> CheckpointFolder:
    address = request.address
    wrapped = await Get(WrappedTarget, WrappedTargetRequest(address, "an export"))
    model = wrapped.target[ModelField].value
    ask = hub_ask(wrapped.target, model)
    if ask is not None:
        return await Get(CheckpointFolder, HubCheckpointRequest(ask, address))
    found = await Get(CheckpointAddress, CheckpointAddressRequest(model, address))
    assert found.address is not None
    return await Get(CheckpointFolder, CheckpointRequest(found.address))


def rules() -> Iterable[object]:
    return collect_rules()
