"""The contract of `export_config.json`: the settings that an export of a checkpoint is made with.

`docs/recipes.md` describes it. A checkpoint may carry one for whoever exports it; each artifact
carries the one that it was made with. Standard library and Python 3.9 only, because Pants and the
export process import this module.
"""

from __future__ import annotations

import json
from typing import Any, Dict, Mapping, Optional

from model_export.spec import SAMPLE_FILES, ExportSpec, plain

RECIPE_FILE = "export_config.json"
RECIPE_VERSION = 1
VERSION_KEY = "schema_version"

# The fields of a target that a recipe may set, under the same names.
RECIPE_SETTINGS = (
    "config",
    "architecture",
    "dtype",
    "for_generation",
    "generation_config",
    "multi_token_decode",
    "components",
    "component_config",
    "sample_inputs",
    "dims",
    "quantizer",
)


def recipe_of(spec: ExportSpec) -> Dict[str, Any]:
    """The recipe of a spec, with every default written out; a setting that it leaves open isn't in.

    A target with this recipe and no setting of its own has the same spec, unless the sample inputs
    are of files: these are no part of a checkpoint, nor of a recipe. Nor is the code of an
    `inputs_from`: an artifact of such a spec carries no recipe.
    """
    settings = {name: plain(getattr(spec, name)) for name in RECIPE_SETTINGS}
    settings["config"] = {"export_format": spec.export_format, **settings["config"]}
    if names_files(settings["sample_inputs"]):
        del settings["sample_inputs"]
    if not spec.for_generation:
        for name in ("generation_config", "multi_token_decode"):
            del settings[name]
    document = {name: value for name, value in settings.items() if value not in (None, {})}
    return {VERSION_KEY: RECIPE_VERSION, **document}


def names_files(samples: Optional[Mapping[str, Any]]) -> bool:
    """Whether `sample_inputs` are of files of a repository."""
    return any(key in SAMPLE_FILES for key in samples or {})


def recipe_text(spec: ExportSpec) -> str:
    """The recipe of a spec as its file: sorted keys, indented, a final newline."""
    return json.dumps(recipe_of(spec), indent=2, sort_keys=True, allow_nan=False) + "\n"
