"""Every setting of NNCF's configs arrives in NNCF's own objects."""

from __future__ import annotations

import dataclasses
from enum import Enum
from typing import Any

import numpy as np
import pytest

from model_export.exporter.quantizers.nncf_config import nncf_config
from model_export.quantizer_table import ENUMS, OBJECTS, SETTINGS

_VALUES = {
    "bool": True,
    "int": 7,
    "float": 0.25,
    "strings": ["one", "two"],
    "numbers": [0.0, 0.5],
    "options": {"compress_weights": False},
}


def _value(kind: str) -> Any:
    word, _, name = kind.partition(" ")
    if word == "enum":
        return ENUMS[name][-1]
    if word == "objects":
        return [_value(f"object {name}")]
    if word == "object":
        fields = {key: _value(item) for key, item in OBJECTS[name].items()}
        fields.pop("destination_type", None)
        return fields
    return _VALUES[word]


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.name
    if dataclasses.is_dataclass(value):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value


@pytest.mark.parametrize("name", ["NNCFQuantizationConfig", "NNCFWeightCompressionConfig"])
def test_every_setting_arrives(name: str) -> None:
    settings = {key: _value(kind) for key, kind in SETTINGS[name].items()}
    config = nncf_config({"type": "NNCFOpenVINOQuantizer", "config": name, **settings})
    made = _plain(config)
    # A folder of the machine that builds.
    made["advanced_parameters"].pop("statistics_path", None)
    assert made == settings


def test_fp8_parameters() -> None:
    config = nncf_config(
        {
            "type": "NNCFOpenVINOQuantizer",
            "config": "NNCFQuantizationConfig",
            "advanced_parameters": {
                "activations_quantization_params": {"destination_type": "E5M2"}
            },
        }
    )
    parameters = config.advanced_parameters.activations_quantization_params
    assert type(parameters).__name__ == "FP8QuantizationParameters"
    assert parameters.destination_type.name == "E5M2"


def test_what_is_not_set_keeps_the_engines_default() -> None:
    config = nncf_config({"type": "NNCFOpenVINOQuantizer", "config": "NNCFQuantizationConfig"})
    assert set(vars(config).values()) == {None}
