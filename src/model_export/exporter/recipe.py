"""Exports a model in a script as the recipe beside its weights says.

    exporter = from_pretrained("path/to/checkpoint")
    exported = exporter.export(model, inputs)

It does what the engine's guide describes for `AutoHfExporter.from_pretrained`, which transformers
5.24.0 doesn't implement. A build reads the same recipe with `recipe=True` (docs/recipes.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.exporters import AutoExportConfig, AutoHfExporter
from transformers.exporters.base import ExportedModel, HfExporter
from transformers.exporters.configs import ExportConfigMixin

from model_export.exporter.backend import load_backend
from model_export.exporter.component_config import (
    check_component_names,
    check_every_config,
    own_config,
)
from model_export.exporter.components import build_components, capture_generation_config
from model_export.exporter.dynamic_shapes import build_dynamic_shapes, check_input_names
from model_export.exporter.output_flags import split_flags
from model_export.exporter.samples import build_sample_inputs
from model_export.plugin.field_errors import SpecError
from model_export.plugin.recipes import (
    RECIPE_PLACES,
    check_recipe_size,
    check_setting,
    find_recipe,
    merge,
)
from model_export.recipe import RECIPE_FILE
from model_export.spec import ExportSpec


@dataclass(frozen=True)
class RecipeExporter:
    """The engine's exporter for the format of a recipe, and what else the recipe says."""

    exporter: HfExporter
    spec: ExportSpec

    def sample_inputs(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None = None
    ) -> dict[str, Any]:
        """The inputs that the recipe describes, or those that a build takes for such a model.

        Raises ExportError for inputs that the model doesn't take.
        """
        return build_sample_inputs(model, tokenizer, self.spec)

    def export(self, model: PreTrainedModel, inputs: Mapping[str, Any]) -> ExportedModel:
        """Export the components that the recipe names; one, `model`, where it doesn't generate.

        `inputs` are keyword arguments of `model(...)`, or of `model.generate(...)` where the recipe
        generates. Raises ExportError for a recipe that the model doesn't fit.
        """
        components = build_components(model, dict(inputs), self.spec)
        check_component_names(self.spec, [component.name for component in components])
        check_input_names(self.spec, {part.name: part.inputs for part in components})
        exported = {}
        for component in components:
            with own_config(self.spec, component.name) as spec:
                config = self._config(component.module, component.inputs, spec)
            # Typed as a whole model by the engine, which takes each component of one.
            part: Any = component.module
            one = self.exporter.export(part, component.inputs, config)
            exported[component.name] = one.components["model"]
        generation = (
            capture_generation_config(model, self.spec) if self.spec.for_generation else None
        )
        return ExportedModel(
            exported, self.spec.export_format, config=model.config, generation_config=generation
        )

    def _config(
        self, module: torch.nn.Module, inputs: Mapping[str, Any], spec: ExportSpec
    ) -> ExportConfigMixin:
        """The engine's config for a component with these inputs, and with a spec of its own.

        Keys of a recipe that say how a build writes its files aren't the engine's, and are left
        out.
        """
        known = {field.name for field in fields(self.exporter.config_class)}
        settings = {key: value for key, value in spec.config.items() if key in known}
        # The engine takes flags (`use_cache`) out itself, and wants shapes for what is left.
        tensors, _ = split_flags(module, dict(inputs))
        settings["dynamic_shapes"] = build_dynamic_shapes(module, tensors, spec).tree
        config: ExportConfigMixin = AutoExportConfig.from_dict(
            {"export_format": spec.export_format, **settings}
        )
        return config


def from_pretrained(path: str | Path, **settings: Any) -> RecipeExporter:
    """The exporter for the recipe in a folder, of a checkpoint or of an artifact.

    `settings` win over the recipe, under the names that both have (`dtype`, `config`, ...).

    Raises SpecError for a folder without a recipe, and for a recipe that can't be exported, alone
    or with `settings`.
    """
    folder = Path(path)
    for name, value in settings.items():
        check_setting(name, value)
    found = {name: folder / name for name in RECIPE_PLACES if (folder / name).is_file()}
    for name, file in found.items():
        check_recipe_size(name, file.stat().st_size)
    recipe = find_recipe({name: file.read_bytes() for name, file in found.items()})
    if recipe is None:
        raise SpecError(
            str(folder), f"has no {RECIPE_FILE}", "Add one (docs/recipes.md), or name its folder"
        )
    spec = merge(recipe, settings).spec
    check_every_config(load_backend(spec.export_format), spec)
    return RecipeExporter(AutoHfExporter.from_config({"export_format": spec.export_format}), spec)
