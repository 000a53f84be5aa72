"""From settings, under the names of a target's fields, to the spec of an export.

Free of Pants: settings come from a BUILD file, from a recipe, or from both.
"""

from __future__ import annotations

from typing import Any, Mapping

from model_export.plugin.calibration_checks import check_calibration
from model_export.plugin.component_config import check_component_config
from model_export.plugin.config_keys import check_config
from model_export.plugin.delegates import check_delegates
from model_export.plugin.dtype_checks import check_dtype_pair
from model_export.plugin.field_errors import SpecError
from model_export.plugin.generation_checks import (
    check_components,
    check_generation_config,
    check_only_for_generation,
)
from model_export.plugin.quantizer_checks import check_quantizer
from model_export.plugin.quantizer_combinations import check_combination
from model_export.plugin.shape_checks import check_dims, check_sample_inputs
from model_export.spec import ExportSpec


def spec_of(settings: Mapping[str, Any]) -> ExportSpec:
    """The spec of an export with these settings, every default written out.

    A setting that is None is as good as missing. Raises SpecError for settings that can't be
    exported, each alone or together.
    """
    given = {name: value for name, value in settings.items() if value is not None}
    if "config" not in given:
        raise SpecError(
            "config",
            "is missing",
            'Write config={"export_format": "onnx"}, or recipe=True for a checkpoint that has one',
        )
    export_format, config = check_config(given["config"])
    generation_config = check_generation_config(given.get("generation_config", {}))
    if (
        generation_config.get("cache_implementation") == "static"
        and "stateful" not in given["config"]
        and "stateful" in config
    ):
        # OpenVINO's own state would lose the count of a static cache's filled positions.
        config["stateful"] = False
    for_generation = given.get("for_generation", False)
    multi_token_decode = given.get("multi_token_decode", False)
    samples, inputs_from = given.get("sample_inputs"), given.get("inputs_from")
    # Its file may have components of its own names, with and without `for_generation`.
    custom = inputs_from is not None
    components = check_components(given.get("components"), custom)
    if not for_generation:
        check_only_for_generation(
            generation_config,
            multi_token_decode,
            None if custom else components,
            "component_config" in given and not custom,
        )
    component_config = check_component_config(
        given.get("component_config", {}),
        {"export_format": export_format, **config},
        components,
        custom,
    )
    shapes = [part.get("dynamic_shapes") for part in (config, *component_config.values())]
    if samples is not None and inputs_from is not None:
        raise SpecError(
            "inputs_from", "is given beside `sample_inputs`, which it replaces", "Remove one"
        )
    quantizer, calibration = given.get("quantizer"), given.get("calibration")
    spec = ExportSpec(
        export_format=export_format,
        config=config,
        architecture=given.get("architecture"),
        dtype=given.get("dtype", "float32"),
        for_generation=for_generation,
        generation_config=generation_config,
        multi_token_decode=multi_token_decode,
        components=components,
        component_config=component_config,
        sample_inputs=None if samples is None else check_sample_inputs(samples),
        inputs_from=inputs_from,
        dims=check_dims(given.get("dims", {}), [item for item in shapes if item]),
        quantizer=None if quantizer is None else check_quantizer(quantizer, custom),
        calibration=None if calibration is None else check_calibration(calibration),
    )
    check_delegates(spec)
    check_combination(spec)
    check_dtype_pair(spec)
    return spec
