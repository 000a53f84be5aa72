"""Which machines can build a target: by its `platforms`, and by what its backend needs."""

from __future__ import annotations

from dataclasses import dataclass
from os.path import basename
from typing import Any, Iterable, Mapping, Optional, Tuple

from pants.base.specs import AddressLiteralSpec, DirLiteralSpec, Spec
from pants.base.specs_parser import SpecsParser
from pants.engine.addresses import Address
from pants.engine.engine_aware import EngineAwareParameter
from pants.engine.internals.options_parsing import _Options
from pants.engine.platform import Platform
from pants.engine.process import FallibleProcessResult, Process, ProcessCacheScope
from pants.engine.rules import Get, collect_rules, rule
from pants.engine.target import WrappedTarget, WrappedTargetRequest
from pants.util.logging import LogLevel
from pants.util.strutil import help_text

from model_export.plugin.delegates import delegates
from model_export.plugin.field_errors import SpecError, nearest
from model_export.plugin.fields import CheckedNamesField

PLATFORMS = tuple(platform.value for platform in Platform)
# A device node, or what WSL has in the place of one. The driver's own tools needn't be on a PATH.
_FIND_GPU = "for device in /dev/nvidia[0-9]* /dev/dxg; do [ -e $device ] && exit 0; done; exit 1"


def asks_for_cuda(
    config: Optional[Mapping[str, Any]],
    component_config: Optional[Mapping[str, Mapping[str, Any]]],
) -> Optional[str]:
    """The key that asks for a GPU, of those that a target itself has; a recipe may have more."""
    asked = delegates(config, component_config)
    return next((path for path, delegate in asked.items() if delegate == "cuda"), None)


def check_platforms(value: Optional[Iterable[str]]) -> None:
    """Raise SpecError for a name that is no platform of Pants, and for none at all."""
    if value is None:
        return
    names = tuple(value)
    if not names:
        raise SpecError("platforms", "is empty, so that nothing could build it", "Remove it")
    for name in names:
        if name not in PLATFORMS:
            raise SpecError("platforms", f"has {name!r}", nearest(name, PLATFORMS))


class PlatformsField(CheckedNamesField):
    alias = "platforms"
    help = help_text(
        f"""
        The platforms that can build this target, of {", ".join(PLATFORMS)}. Default: all.

        On another one `package ::` and `test ::` leave it out with a warning, and fail where it is
        named itself. So it is, whatever this field says, with `config["backend"]` "cuda" on a
        machine without a GPU.
        """
    )

    @classmethod
    def check(cls, value: Any) -> None:
        check_platforms(value)


@dataclass(frozen=True)
class BuildabilityRequest(EngineAwareParameter):
    """Whether this machine can build the target at `address`.

    `cuda` is the key that asks for ExecuTorch's CUDA delegate, None if none does.
    """

    address: Address
    cuda: Optional[str]

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
    platforms = wrapped.target[PlatformsField].value
    if platforms is not None and platform.value not in platforms:
        return Buildability(
            "platforms",
            f"is {list(platforms)}, and this is {platform.value}",
            f"Build it on {' or '.join(platforms)}",
        )
    if request.cuda is None:
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
    return Buildability(
        request.cuda,
        "is 'cuda', and this machine has no CUDA GPU",
        "Build it where one is, or use 'xnnpack'",
    )


def is_named(specs: Iterable[Spec], address: Address) -> bool:
    """Whether one of `specs` is this very target, and not a folder that it is in."""
    for spec in specs:
        if isinstance(spec, AddressLiteralSpec):
            named = spec.to_address()
            same = (named.spec_path, named.target_name) == (address.spec_path, address.target_name)
            if same and (not named.parameters or named.parameters == address.parameters):
                return True
        elif isinstance(spec, DirLiteralSpec):  # `a/b` stands for `a/b:b`.
            folder = spec.directory
            if (address.spec_path, address.target_name) == (folder, basename(folder)):
                return True
    return False


@dataclass(frozen=True)
class TargetsNamedRequest:
    """What whoever ran Pants has named."""


@dataclass(frozen=True)
class TargetsNamed:
    """The command line, for `is_named`."""

    specs: Tuple[Spec, ...]


@rule(desc="Read which targets the command line names", level=LogLevel.DEBUG)
async def targets_named(_: TargetsNamedRequest, options: _Options) -> TargetsNamed:
    # Not `Specs`, which Pants 2.17.1 hands to goals alone: what is requested through a union, as
    # tests are, doesn't see them.
    parsed = SpecsParser().parse_specs(
        options.options.specs,
        description_of_origin="the command line",
    )
    includes = parsed.includes
    return TargetsNamed((*includes.address_literals, *includes.dir_literals))


def rules() -> Iterable[object]:
    return collect_rules()
