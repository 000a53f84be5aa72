"""The check of `component_config`: keys of `config` that one component has otherwise."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional, Tuple

from model_export.plugin.config_keys import check_config, check_config_part
from model_export.plugin.field_errors import SpecError, require_mapping
from model_export.plugin.generation_checks import check_component_name

_FIELD = "component_config"
_WHAT = "a dict of component name -> keys of `config`"


def check_component_config_part(value: object, custom: bool = False) -> None:
    """Check a `component_config` whose `config` isn't known; a key may be of any format.

    `custom` is as in `check_component_name`. Raises SpecError for an unknown component, and for a
    key that no component can have by itself.
    """
    for name, own in _components(value, custom).items():
        try:
            check_config_part(own)
        except SpecError as error:
            raise _inside(name, error) from error


def check_component_config(
    value: object,
    config: Mapping[str, Any],
    components: Optional[Tuple[str, ...]],
    custom: bool = False,
) -> Dict[str, Dict[str, Any]]:
    """Check `component_config` on top of the whole `config`: the keys given, checked, by component.

    `components` are those that the target builds, if it says so; `custom` is as in
    `check_component_name`. Raises SpecError for a component that is left out, and for a key that
    doesn't go with the rest of the component's config.
    """
    checked = {}
    for name, own in _components(value, custom).items():
        if components is not None and name not in components:
            raise SpecError(
                f"{_FIELD}[{name!r}]",
                "is of a component that `components` leaves out",
                f"Remove it, or add {name!r} to `components`",
            )
        try:
            _, whole = check_config({**config, **own})
        except SpecError as error:
            raise _inside(name, error) from error
        checked[name] = {key: whole[key] for key in sorted(own)}
    return checked


def _components(value: object, custom: bool) -> Mapping[str, Mapping[str, Any]]:
    given = require_mapping(_FIELD, value, _WHAT)
    for name, own in sorted(given.items()):
        path = f"{_FIELD}[{name!r}]"
        check_component_name(path, name, "is no component", custom)
        keys = require_mapping(path, own, "a dict of keys of `config`")
        if "export_format" in keys:
            raise SpecError(
                f"{path}['export_format']",
                "is one for all components",
                "Write it in `config` alone",
            )
        if "quantizer" in keys:
            raise SpecError(
                f"{path}['quantizer']",
                "takes an object of the engine, which a BUILD file can't hold",
                f'Write `quantizer={{"{name}": {{"type": ...}}}}`: it quantizes what it names',
            )
    return {name: given[name] for name in sorted(given)}


def _inside(name: str, error: SpecError) -> SpecError:
    path = f"{_FIELD}[{name!r}]{error.path[len('config') :]}"
    return SpecError(path, error.problem, error.remedy)
