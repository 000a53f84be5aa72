"""From the fields of an `export_model` target to the spec of its export."""

from __future__ import annotations

from typing import Any, Dict

from pants.engine.target import Target

from model_export.plugin.spec_settings import spec_of
from model_export.recipe import RECIPE_SETTINGS
from model_export.spec import ExportSpec


def target_settings(target: Target) -> Dict[str, Any]:
    """What a target itself says of its export, by field; nothing of what it leaves open."""
    fields = {field.alias: field.value for field in target.field_values.values()}
    names = (*RECIPE_SETTINGS, "calibration", "inputs_from")
    return {name: fields[name] for name in names if fields[name] is not None}


def export_spec(target: Target) -> ExportSpec:
    """The spec of an `export_model` target without a recipe, every default written out.

    Raises SpecError for fields that don't go together; each alone was checked when it was read.
    """
    return spec_of(target_settings(target))
