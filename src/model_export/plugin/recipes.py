"""Reads a checkpoint's recipe, trusting nothing of it, and lets a BUILD file's fields win over it.

Free of Pants: the Python entry to recipes uses it too. `docs/recipes.md` has the rules.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, NoReturn, Optional, Tuple

from model_export.plugin.component_config import check_component_config_part
from model_export.plugin.config_keys import CONFIG_KEYS, check_config_part
from model_export.plugin.field_errors import SpecError, nearest
from model_export.plugin.generation_checks import check_components, check_generation_config
from model_export.plugin.quantizer_checks import check_quantizer
from model_export.plugin.references import check_architecture, check_dtype
from model_export.plugin.shape_checks import (
    check_dims_form,
    check_sample_inputs,
    named_dims,
)
from model_export.plugin.spec_settings import spec_of
from model_export.recipe import RECIPE_FILE, RECIPE_SETTINGS, RECIPE_VERSION, VERSION_KEY
from model_export.spec import SAMPLE_FILES, ExportSpec, plain

CONFIG_FILE = "config.json"
CONFIG_ENTRY = "export_config"
# Where a checkpoint may have its recipe, in the order in which they are looked at.
RECIPE_PLACES = (RECIPE_FILE, CONFIG_FILE)
# Far more than any recipe has; sample inputs are a few numbers.
MAX_RECIPE_BYTES = 1 << 20
_MAX_DEPTH = 16
_INTEGER_DIGITS = 20
_SHOWN_CHARACTERS = 80
_LINE_CHARACTERS = 300

_ALIASES: Mapping[str, str] = {
    "export_format": "config",
    "format": "config",
    "version": VERSION_KEY,
    "generation": "for_generation",
    "samples": "sample_inputs",
    "inputs": "sample_inputs",
    "torch_dtype": "dtype",
}


@dataclass(frozen=True)
class Recipe:
    """A recipe that can be exported as it is: where it was, and what it sets."""

    file: str
    settings: Mapping[str, Any]

    @property
    def spec(self) -> ExportSpec:
        """The spec of an export that sets nothing else."""
        return spec_of(self.settings)


@dataclass(frozen=True)
class Merged:
    """The settings of a recipe and a target together, and what the target's own are of them."""

    spec: ExportSpec
    overridden: Mapping[str, Any]


def find_recipe(files: Mapping[str, bytes]) -> Optional[Recipe]:
    """The recipe of a checkpoint, of whose files those at RECIPE_PLACES are given.

    `export_config.json`, or else what config.json has under `export_config`; None without either.
    Raises SpecError, with the file and the key at fault, for one that can't be exported as it is.
    """
    if RECIPE_FILE in files:
        document = _parsed(RECIPE_FILE, files[RECIPE_FILE])
        return _checked(RECIPE_FILE, document)
    if CONFIG_FILE in files:
        config = _parsed(CONFIG_FILE, files[CONFIG_FILE])
        if isinstance(config, dict) and CONFIG_ENTRY in config:
            return _checked(f"{CONFIG_FILE}: {CONFIG_ENTRY}", config[CONFIG_ENTRY])
    return None


def check_recipe_size(file: str, size: int) -> None:
    """Raise SpecError for a file that is too long to be read for a recipe."""
    if size > MAX_RECIPE_BYTES:
        raise SpecError(file, f"has {size} bytes", f"A recipe has at most {MAX_RECIPE_BYTES}")


def check_setting(name: str, value: object) -> None:
    """Check one setting of a recipe by itself; raises SpecError."""
    if name == "inputs_from":
        raise SpecError(
            name, "is code, which a recipe can't hold", "Write it in the target, beside `recipe`"
        )
    if name not in _CHECKS:
        raise SpecError(
            name if name.isidentifier() and name.isascii() else ascii(name),
            "is no setting of a recipe",
            nearest(name, (VERSION_KEY, *RECIPE_SETTINGS), _ALIASES),
        )
    _CHECKS[name](value)


def merge(recipe: Recipe, given: Mapping[str, Any]) -> Merged:
    """A recipe with the settings of a target, which win.

    `config`, `generation_config` and each component's part of `component_config` are merged key by
    key, the others are replaced. Settings of the recipe that lose their meaning by it are left out:
    keys that another `export_format` doesn't have, all about generation where the target doesn't
    generate, the config of components that it leaves out, the length of a cache that isn't static
    any more, the bounds of dimensions that nothing names any more. Raises SpecError for what
    doesn't go together. `inputs_from` takes the place of a recipe's `sample_inputs`.
    """
    said = dict(recipe.settings)
    if given.get("for_generation") is False:
        for name in (
            "generation_config",
            "multi_token_decode",
            "components",
            "component_config",
        ):
            said.pop(name, None)
    if "inputs_from" in given:
        said.pop("sample_inputs", None)
    settings = {**said, **given}
    config = _merged_config(said["config"], given.get("config", {}))
    settings["config"] = config
    settings["generation_config"] = _merged_generation(
        said.get("generation_config", {}), given.get("generation_config", {})
    )
    by_component = _merged_components(said, given, config["export_format"])
    if by_component or "component_config" in given:
        settings["component_config"] = by_component
    else:
        settings.pop("component_config", None)
    if "dims" in said and "dims" not in given:
        parts = (config, *by_component.values())
        used = {name for part in parts for name in named_dims(part.get("dynamic_shapes") or {})}
        settings["dims"] = {
            name: bounds for name, bounds in settings["dims"].items() if name in used
        }
    return Merged(spec_of(settings), _overridden(recipe.settings, given))


def _merged_config(said: Mapping[str, Any], given: Mapping[str, Any]) -> Dict[str, Any]:
    export_format = given.get("export_format", said["export_format"])
    return {**_keys_of(export_format, said), **given}


def _keys_of(export_format: str, config: Mapping[str, Any]) -> Dict[str, Any]:
    return {
        name: value
        for name, value in config.items()
        if name == "export_format" or export_format in CONFIG_KEYS[name].formats
    }


def _merged_components(
    said: Mapping[str, Any], given: Mapping[str, Any], export_format: str
) -> Dict[str, Dict[str, Any]]:
    built = given.get("components")
    merged = {
        name: keys
        for name, own in said.get("component_config", {}).items()
        if (built is None or name in built) and (keys := _keys_of(export_format, own))
    }
    for name, own in given.get("component_config", {}).items():
        merged[name] = {**merged.get(name, {}), **own}
    return merged


def _merged_generation(said: Mapping[str, Any], given: Mapping[str, Any]) -> Dict[str, Any]:
    merged = {**said, **given}
    if merged.get("cache_implementation") != "static" and "max_cache_len" not in given:
        merged.pop("max_cache_len", None)
    return merged


def _overridden(said: Mapping[str, Any], given: Mapping[str, Any]) -> Dict[str, Any]:
    """The settings of a target that differ from the recipe's, or that the recipe doesn't have."""
    found = {}
    for name, value in given.items():
        own, other = plain(value), plain(said.get(name))
        if name in ("config", "generation_config"):
            other = other or {}
            own = {k: v for k, v in own.items() if k not in other or other[k] != v}
            if own:
                found[name] = own
        elif own != other:
            found[name] = own
    return found


def _parsed(file: str, content: bytes) -> Any:
    check_recipe_size(file, len(content))

    def unique(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
        found: Dict[str, Any] = {}
        for key, value in pairs:
            if key in found:
                raise SpecError(f"{file}: {_shown(key)}", "is there twice", "Remove one of them")
            found[key] = value
        return found

    def refuse(number: str) -> NoReturn:
        raise SpecError(file, f"has {number}, which is no number of JSON", "Write a finite number")

    def integer(digits: str) -> int:
        if len(digits) > _INTEGER_DIGITS:
            raise SpecError(file, f"has the number {_shown(digits)}", "Write a smaller one")
        return int(digits)

    try:
        document = json.loads(
            content.decode("utf-8"),
            object_pairs_hook=unique,
            parse_int=integer,
            parse_constant=refuse,
        )
    except UnicodeDecodeError as error:
        raise SpecError(file, "isn't UTF-8 text", "Save it as UTF-8") from error
    except RecursionError as error:
        raise SpecError(file, "is nested too deep", "Write a recipe") from error
    except ValueError as error:
        if isinstance(error, SpecError):
            raise
        raise SpecError(file, f"is no JSON: {error}", "Correct it") from error
    return document


def _checked(file: str, document: Any) -> Recipe:
    if not isinstance(document, dict):
        raise SpecError(
            file, f"is {_shown(document)}, and no object", 'Write {"schema_version": 1, ...}'
        )
    if _depth(document) > _MAX_DEPTH:
        raise SpecError(file, f"is nested deeper than {_MAX_DEPTH}", "Write a recipe")
    version = document.get(VERSION_KEY)
    if version is None:
        raise SpecError(
            f"{file}: {VERSION_KEY}",
            "is missing",
            f'Add "{VERSION_KEY}": {RECIPE_VERSION}; the settings are those of docs/recipes.md',
        )
    if type(version) is not int or version != RECIPE_VERSION:
        raise SpecError(
            f"{file}: {VERSION_KEY}",
            f"is {_shown(version)}, and this model-export reads {RECIPE_VERSION}",
            "Use the model-export that it was written for, or write the settings in the target",
        )
    settings = {name: value for name, value in document.items() if name != VERSION_KEY}
    for name, value in settings.items():
        try:
            check_setting(name, value)
        except SpecError as error:
            raise _inside(file, error) from error
    recipe = Recipe(file, settings)
    try:
        _ = recipe.spec
    except SpecError as error:
        raise _inside(file, error) from error
    return recipe


def _inside(file: str, error: SpecError) -> SpecError:
    # What a hostile file says may be as long as the file.
    parts = (error.path, error.problem, error.remedy)
    path, problem, remedy = (
        part if len(part) <= _LINE_CHARACTERS else f"{part[:_LINE_CHARACTERS]}..." for part in parts
    )
    return SpecError(f"{file}: {path}", problem, remedy)


def _depth(value: Any) -> int:
    """How deep objects and lists are nested, counted without recursion."""
    depth, level = 0, [value]
    while level:
        depth += 1
        below: List[Any] = []
        for item in level:
            if isinstance(item, dict):
                below.extend(item.values())
            elif isinstance(item, list):
                below.extend(item)
        level = below
    return depth


def _flag(name: str) -> Callable[[Any], object]:
    def check(value: Any) -> None:
        if not isinstance(value, bool):
            raise SpecError(name, f"must be true or false, not {_shown(value)}", "Write true")

    return check


def _name(name: str, check_name: Callable[[str], object]) -> Callable[[Any], object]:
    def check(value: Any) -> None:
        if not isinstance(value, str):
            raise SpecError(name, f"must be a string, not {_shown(value)}", "Quote it")
        check_name(value)

    return check


def _present(name: str, check_value: Callable[[Any], object]) -> Callable[[Any], object]:
    def check(value: Any) -> None:
        if value is None:
            raise SpecError(name, "is null", "Remove it")
        check_value(value)

    return check


def _check_samples(value: Any) -> None:
    check_sample_inputs(value)
    for key in SAMPLE_FILES:
        if key in value:
            raise SpecError(
                f"sample_inputs[{key!r}]",
                "names files of a repository, which a recipe doesn't have",
                "Describe the inputs as tensors, or set `sample_inputs` in the target",
            )


_CHECKS: Mapping[str, Callable[[Any], object]] = {
    "config": _present("config", check_config_part),
    "architecture": _name("architecture", check_architecture),
    "dtype": _name("dtype", check_dtype),
    "for_generation": _flag("for_generation"),
    "generation_config": _present("generation_config", check_generation_config),
    "multi_token_decode": _flag("multi_token_decode"),
    "components": _present("components", check_components),
    "component_config": _present("component_config", check_component_config_part),
    "sample_inputs": _present("sample_inputs", _check_samples),
    "dims": _present("dims", check_dims_form),
    "quantizer": _present("quantizer", check_quantizer),
}


def _shown(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."
