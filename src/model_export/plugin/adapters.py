"""The adapter of an `export_model` target: of its hub id, or of the target that it names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterable, Optional

from pants.engine.addresses import Address
from pants.engine.engine_aware import EngineAwareParameter
from pants.engine.rules import Get, collect_rules, rule
from pants.engine.target import (
    FieldSet,
    InferDependenciesRequest,
    InferredDependencies,
    WrappedTarget,
    WrappedTargetRequest,
)
from pants.engine.unions import UnionRule
from pants.util.logging import LogLevel

from model_export.plugin.adapter_field import AdapterField, adapter_ask
from model_export.plugin.checkpoint_folders import CheckpointFolder, CheckpointRequest
from model_export.plugin.checkpoint_lookup import CheckpointAddress, CheckpointAddressRequest
from model_export.plugin.hub_checkpoints import HubCheckpointRequest
from model_export.plugin.target_types import ExportDependenciesField


@dataclass(frozen=True)
class AdapterRequest(EngineAwareParameter):
    """The adapter of the `export_model` target at `address`."""

    address: Address

    def debug_hint(self) -> str:
        return self.address.spec


@dataclass(frozen=True)
class Adapter:
    """The files of an adapter; None for a target without one."""

    folder: Optional[CheckpointFolder]


@rule(desc="Make the adapter of an export", level=LogLevel.DEBUG)
async def adapter_of_export(request: AdapterRequest) -> Adapter:
    address = request.address
    wrapped = await Get(WrappedTarget, WrappedTargetRequest(address, "an export"))
    adapter = wrapped.target[AdapterField].value
    if adapter is None:
        return Adapter(None)
    ask = adapter_ask(wrapped.target)
    if ask is not None:
        return Adapter(await Get(CheckpointFolder, HubCheckpointRequest(ask, address)))
    found = await Get(
        CheckpointAddress, CheckpointAddressRequest(adapter, address, AdapterField.alias)
    )
    assert found.address is not None
    return Adapter(await Get(CheckpointFolder, CheckpointRequest(found.address, adapter=True)))


@dataclass(frozen=True)
class AdapterFieldSet(FieldSet):
    required_fields = (AdapterField, ExportDependenciesField)

    adapter: AdapterField


class InferAdapter(InferDependenciesRequest):
    infer_from = AdapterFieldSet


@rule(desc="Infer the adapter of an export", level=LogLevel.DEBUG)
async def infer_adapter(request: InferAdapter) -> InferredDependencies:
    fields = request.field_set
    if fields.adapter.value is None:
        return InferredDependencies([])
    found = await Get(
        CheckpointAddress,
        CheckpointAddressRequest(fields.adapter.value, fields.address, AdapterField.alias),
    )
    return InferredDependencies([] if found.address is None else [found.address])


def rules() -> Iterable[object]:
    return [*collect_rules(), UnionRule(InferDependenciesRequest, InferAdapter)]
