"""Which targets the command line names, each by itself and not by a folder or a glob."""

from __future__ import annotations

from dataclasses import dataclass
from os.path import basename
from typing import Iterable, Tuple

from pants.base.specs import AddressLiteralSpec, DirLiteralSpec, Spec
from pants.base.specs_parser import SpecsParser
from pants.engine.addresses import Address
from pants.engine.internals.options_parsing import _Options
from pants.engine.rules import collect_rules, rule
from pants.util.logging import LogLevel


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
