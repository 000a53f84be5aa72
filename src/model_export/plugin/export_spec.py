"""From the fields of an `export_model` target to the spec of its export."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional

from pants.engine.target import Target

from model_export.plugin.config_keys import check_config
from model_export.plugin.generation_checks import (
    check_components,
    check_generation_config,
    check_only_for_generation,
)
from model_export.plugin.shape_checks import check_dims, check_sample_inputs
from model_export.spec import ExportSpec


def export_spec(target: Target) -> ExportSpec:
    """The spec of an `export_model` target, every default written out.

    Raises SpecError for fields that don't go together; each alone was checked when it was read.
    """
    fields: Dict[str, Any] = {field.alias: field.value for field in target.field_values.values()}
    export_format, config = check_config(fields["config"])
    generation_config = check_generation_config(fields["generation_config"] or {})
    if (
        generation_config.get("cache_implementation") == "static"
        and "stateful" not in fields["config"]
        and "stateful" in config
    ):
        # OpenVINO's own state would lose the count of a static cache's filled positions.
        config["stateful"] = False
    components = check_components(fields["components"])
    if not fields["for_generation"]:
        check_only_for_generation(generation_config, fields["multi_token_decode"], components)
    samples: Optional[Mapping[str, Any]] = fields["sample_inputs"]
    return ExportSpec(
        export_format=export_format,
        config=config,
        architecture=fields["architecture"],
        dtype=fields["dtype"],
        for_generation=fields["for_generation"],
        generation_config=generation_config,
        multi_token_decode=fields["multi_token_decode"],
        components=components,
        sample_inputs=None if samples is None else check_sample_inputs(samples),
        dims=check_dims(fields["dims"] or {}, config.get("dynamic_shapes")),
    )
