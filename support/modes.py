"""The ways in which the support table exports each family."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from model_export.plugin.config_keys import check_config
from model_export.plugin.quantizer_checks import check_quantizer
from model_export.plugin.quantizer_combinations import check_combination
from model_export.spec import ExportSpec
from support.families import Family
from support.quantizers import Quantizer

# Long enough for every prompt of a probe, and for the table's window to be crossed.
_MAX_CACHE_LEN = 64


@dataclass(frozen=True)
class Mode:
    """One column under each backend; `spec_fields` are what a BUILD file would say."""

    name: str
    spec_fields: Mapping[str, Any] = field(default_factory=dict)

    def spec(
        self, export_format: str, family: Family, quantizer: Quantizer | None = None
    ) -> ExportSpec:
        """The spec of a dynamic float32 export in this mode, every default written out.

        Raises SpecError where a BUILD file with it would be refused.
        """
        _, config = check_config({"export_format": export_format, "dynamic": True})
        fields = dict(self.spec_fields)
        # Without a state: the default of a target with a static cache, and what an encoder of
        # tokens needs to take any number of them.
        if export_format == "openvino" and ("generation_config" in fields or family.encodes_tokens):
            config["stateful"] = False
        if family.recurrent:
            fields["multi_token_decode"] = False
        if quantizer is not None:
            fields["quantizer"] = check_quantizer(quantizer.settings)
        spec = ExportSpec(export_format, config, sample_inputs=family.sample_inputs, **fields)
        check_combination(spec)
        return spec

    def fits(self, family: Family) -> bool:
        """Whether this mode means anything for a family."""
        if "generation_config" in self.spec_fields and family.recurrent:
            return False
        return family.generates or not self.spec_fields


_GENERATION = {"for_generation": True, "multi_token_decode": True}

MODES = (
    Mode("forward"),
    Mode("growing cache", _GENERATION),
    Mode(
        "static cache",
        {
            **_GENERATION,
            "generation_config": {
                "cache_implementation": "static",
                "max_cache_len": _MAX_CACHE_LEN,
            },
        },
    ),
)


def quantized_mode(family: Family) -> Mode:
    """The mode in which a family is quantized."""
    return MODES[1] if family.generates else MODES[0]
