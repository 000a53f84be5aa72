"""The fields of `export_model` that say how its graphs are quantized."""

from __future__ import annotations

from typing import Any

from pants.util.strutil import help_text

from model_export.plugin.calibration_checks import check_calibration
from model_export.plugin.fields import CheckedMappingField
from model_export.plugin.quantizer_checks import check_quantizer
from model_export.quantizer_table import QUANTIZERS


class QuantizerField(CheckedMappingField):
    alias = "quantizer"
    help = help_text(
        f"""
        Post-training quantization, by the engine's names: `{{"type": "OnnxRuntimeQuantizer",
        "config": "OnnxRuntimeDynamicConfig", "per_channel": True}}`. All settings of the named
        class can be given, enums by the name of the value. A dict of component name -> such a dict
        quantizes these components and no other.

        Types: {", ".join(QUANTIZERS)}. docs/quantization.md lists what each format takes.
        """
    )

    @classmethod
    def check(cls, value: Any) -> None:
        # Names of components are known with `inputs_from`, when the whole target is read.
        check_quantizer(value, custom=True)


class CalibrationField(CheckedMappingField):
    alias = "calibration"
    help = help_text(
        """
        The samples that a static quantizer observes the model on: `{"files": [":texts"],
        "samples": 64, "seed": 0, "max_length": 128}`. `files` are addresses of `file` and `files`
        targets with JSON lines, `{"text": "..."}`, `{"messages": [...]}`, `{"image": "x.png"}` or
        `{"audio": "x.wav"}`, and with the images and sound that they name, or with images or sound
        alone; `samples` of them are drawn with `seed`, text cut at `max_length` tokens. Default:
        the sample inputs alone.
        """
    )

    @classmethod
    def check(cls, value: Any) -> None:
        check_calibration(value)
