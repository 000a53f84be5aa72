"""Whether this machine can build a target: by its `platforms`, and by what its backend needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Iterable, Mapping, Optional

from pants.engine.addresses import Address
from pants.engine.engine_aware import EngineAwareParameter
from pants.engine.platform import Platform
from pants.engine.process import FallibleProcessResult, Process, ProcessCacheScope
from pants.engine.rules import Get, collect_rules, rule
from pants.engine.target import WrappedTarget, WrappedTargetRequest
from pants.util.logging import LogLevel

from model_export.plugin.delegates import delegates
from model_export.plugin.export_settings import ExportSettings, ExportSettingsRequest
from model_export.plugin.field_errors import SpecError
from model_export.plugin.platforms import PlatformsField
from model_export.plugin.target_types import ComponentConfigField, ConfigField, RecipeField

# A device node, or what WSL has in the place of one. The driver's own tools needn't be on a PATH.
_FIND_GPU = "for device in /dev/nvidia[0-9]* /dev/dxg; do [ -e $device ] && exit 0; done; exit 1"


@dataclass(frozen=True)
class BuildabilityRequest(EngineAwareParameter):
    """Whether this machine can build the `export_model` target at `address`."""

    address: Address

    def debug_hint(self) -> str:
        return self.address.spec


@dataclass(frozen=True)
class Buildability:
    """What keeps this machine from building a target, as the parts of a SpecError; None if nothing.

    Not the error itself: results of rules are compared.
    """

    field: Optional[str] = None
    problem: str = ""
    remedy: str = ""

    @property
    def obstacle(self) -> Optional[SpecError]:
        return SpecError(self.field, self.problem, self.remedy) if self.field else None


@rule(desc="Ask whether this machine can build a target", level=LogLevel.DEBUG)
async def buildability(request: BuildabilityRequest, platform: Platform) -> Buildability:
    wrapped = await Get(WrappedTarget, WrappedTargetRequest(request.address, "an export"))
    target = wrapped.target
    platforms = target[PlatformsField].value
    if platforms is not None and platform.value not in platforms:
        return Buildability(
            "platforms",
            f"is {list(platforms)}, and this is {platform.value}",
            f"Build it on {' or '.join(platforms)}",
        )
    cuda = _asks_for_cuda(target[ConfigField].value, target[ComponentConfigField].value)
    if cuda is None and not target[RecipeField].value:
        return Buildability()
    found = await Get(
        FallibleProcessResult,
        Process(
            argv=("/bin/sh", "-c", _FIND_GPU),
            description="Look for a CUDA GPU",
            level=LogLevel.DEBUG,
            cache_scope=ProcessCacheScope.PER_SESSION,
        ),
    )
    if found.exit_code == 0:
        return Buildability()
    if cuda is None:  # Only then is the checkpoint needed, for the recipe in it.
        settings = await Get(ExportSettings, ExportSettingsRequest(request.address))
        asked = _asks_for_cuda(settings.spec.config, settings.spec.component_config)
        if asked is None or settings.recipe is None:
            return Buildability()
        cuda = f"{settings.recipe.file}: {asked}"
    return Buildability(
        cuda,
        "is 'cuda', and this machine has no CUDA GPU",
        "Build it where one is, or use 'xnnpack'",
    )


def _asks_for_cuda(
    config: Optional[Mapping[str, Any]],
    component_config: Optional[Mapping[str, Mapping[str, Any]]],
) -> Optional[str]:
    """The key that asks for a GPU."""
    asked = delegates(config, component_config)
    return next((path for path, delegate in asked.items() if delegate == "cuda"), None)


def rules() -> Iterable[object]:
    return collect_rules()
