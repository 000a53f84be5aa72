"""The quantizers that a BUILD file may name are the engine's, setting for setting."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import pytest
from nncf.quantization.advanced_parameters import FP8QuantizationParameters
from torchao.quantization.pt2e.quantizer.x86_inductor_quantizer import (
    get_default_x86_inductor_quantization_config,
)
from transformers.exporters import quantizers
from transformers.exporters.quantizers import ExportQuantizer

from model_export.exporter.quantizers.nncf_config import ENUM_CLASSES, OBJECT_CLASSES
from model_export.quantizer_table import ENUMS, LEFT_OUT, OBJECTS, QUANTIZERS, SETTINGS

_CONFIGS = [name for name in SETTINGS if name.endswith("Config")]
_ONNXRUNTIME_ENUMS = {"QuantType", "QuantFormat", "CalibrationMethod"}


def _fields(made: Any) -> set[str]:
    return {field.name for field in dataclasses.fields(made)}


def test_types_and_formats() -> None:
    engine = {}
    for name in dir(quantizers):
        found: Any = getattr(quantizers, name)
        if inspect.isclass(found) and issubclass(found, ExportQuantizer):
            formats: Any = vars(found).get("supported_formats", ())
            engine[name] = set(map(str, formats))
    # The class that the others derive from.
    assert engine.pop("ExportQuantizer") == set()
    assert {name: set(item.formats) for name, item in QUANTIZERS.items()} == engine


@pytest.mark.parametrize("name", _CONFIGS)
def test_settings(name: str) -> None:
    assert set(SETTINGS[name]) == _fields(getattr(quantizers, name))


def test_settings_of_x86_inductor() -> None:
    signature = inspect.signature(get_default_x86_inductor_quantization_config)
    assert set(SETTINGS["X86InductorQuantizer"]) == set(signature.parameters)


@pytest.mark.parametrize("name", sorted(OBJECTS))
def test_objects(name: str) -> None:
    fields = _fields(OBJECT_CLASSES[name])
    if name == "QuantizationParameters":
        fields |= _fields(FP8QuantizationParameters)
    assert set(OBJECTS[name]) == fields - set(LEFT_OUT.get(name, ()))


@pytest.mark.parametrize("name", sorted(set(ENUMS) - _ONNXRUNTIME_ENUMS))
def test_enums(name: str) -> None:
    assert set(ENUMS[name]) == set(ENUM_CLASSES[name].__members__)


def test_every_kind_is_of_the_tables() -> None:
    kinds = {
        kind for settings in (*SETTINGS.values(), *OBJECTS.values()) for kind in settings.values()
    }
    for kind in kinds:
        word, _, name = kind.partition(" ")
        if word == "enum":
            assert name in ENUMS
        elif word in ("object", "objects"):
            assert name in OBJECTS
