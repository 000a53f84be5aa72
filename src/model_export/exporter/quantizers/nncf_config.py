"""The one place that makes NNCF's objects (nncf 3.4.0) and the engine's configs of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import nncf
import numpy as np
from nncf.common.quantization.quantizer_propagation.structs import QuantizerPropagationRule
from nncf.common.quantization.structs import QuantizationScheme
from nncf.parameters import QuantizationMode
from nncf.quantization import advanced_parameters as advanced
from nncf.quantization import range_estimator
from nncf.tensor import TensorDataType
from transformers.exporters.quantizers import NNCFQuantizationConfig, NNCFWeightCompressionConfig

from model_export.quantizer_table import OBJECTS, SETTINGS, own_settings, settings_class

CONFIGS: Mapping[str, type] = {
    "NNCFQuantizationConfig": NNCFQuantizationConfig,
    "NNCFWeightCompressionConfig": NNCFWeightCompressionConfig,
}
ENUM_CLASSES: Mapping[str, Any] = {
    "AggregatorType": range_estimator.AggregatorType,
    "BackupMode": nncf.BackupMode,
    "CompressWeightsMode": nncf.CompressWeightsMode,
    "CompressionFormat": nncf.CompressionFormat,
    "FP8Type": advanced.FP8Type,
    "GroupSizeFallbackMode": advanced.GroupSizeFallbackMode,
    "ModelType": nncf.ModelType,
    "OverflowFix": nncf.OverflowFix,
    "QuantizationMode": QuantizationMode,
    "QuantizationPreset": nncf.QuantizationPreset,
    "QuantizationScheme": QuantizationScheme,
    "QuantizerPropagationRule": QuantizerPropagationRule,
    "SensitivityMetric": nncf.SensitivityMetric,
    "StatisticsType": range_estimator.StatisticsType,
    "TargetDevice": nncf.TargetDevice,
    "TensorDataType": TensorDataType,
}
OBJECT_CLASSES: Mapping[str, type] = {
    "IgnoredScope": nncf.IgnoredScope,
    "Subgraph": nncf.Subgraph,
    "RangeEstimatorParameters": range_estimator.RangeEstimatorParameters,
    "StatisticsCollectorParameters": range_estimator.StatisticsCollectorParameters,
    **{
        name: getattr(advanced, name)
        for name in OBJECTS
        if name.startswith("Advanced") or name == "QuantizationParameters"
    },
}


def nncf_config(quantizer: Mapping[str, Any]) -> Any:
    """The engine's config of an NNCF quantizer, its settings as NNCF's own objects."""
    name = settings_class(quantizer)
    kinds = SETTINGS[name]
    return CONFIGS[name](
        **{key: _value(kinds[key], value) for key, value in own_settings(quantizer).items()}
    )


def _value(kind: str, value: Any) -> Any:
    word, _, name = kind.partition(" ")
    if word == "enum":
        return ENUM_CLASSES[name][value]
    if word == "object":
        return _object(name, value)
    if word == "objects":
        return [_object(name, item) for item in value]
    return np.asarray(value, dtype=np.float32) if word == "numbers" else value


def _object(name: str, fields: Mapping[str, Any]) -> Any:
    made = OBJECT_CLASSES[name]
    if "destination_type" in fields:
        made = advanced.FP8QuantizationParameters
    kinds = OBJECTS[name]
    return made(**{key: _value(kinds[key], value) for key, value in fields.items()})
