"""The engine's quantizers: their names, formats, settings and the names of enum values.

What a BUILD file may say, and how the export process turns it into the engine's objects. Tests in
the engine's resolves compare this table with the engine's own classes. Standard library and
Python 3.9 only, because Pants imports this module.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Iterator, Mapping, Optional, Tuple

# The kind of a setting is one of these, `enum X` or `object X` for an X of the tables below, or
# `objects X` for a list of them.
BOOL, INT, FLOAT, STRINGS, NUMBERS, OPTIONS = (
    "bool",
    "int",
    "float",
    "strings",
    "numbers",
    "options",
)

# The first ONNX opset for weights of four bits by NNCF.
# `DequantizeLinear` knows blocks of a channel from here on, and nncf 3.4.0 writes it. Below, nncf
# makes each product a `MatMulNBits` of ONNX Runtime, which loses whatever that can't say: the order
# of factors where the weight is the first ("Incompatible dimensions for matrix multiplication", or
# no word if it is square), `alpha` of a Gemm, a weight that a second product shares. It adds a bias
# twice, and doesn't pack zero points, which ONNX Runtime 1.32.0 refuses. ONNX Runtime makes
# `MatMulNBits` of the dequantized products itself, where they are.
FOUR_BIT_OPSET = 21

ENUMS: Mapping[str, Tuple[str, ...]] = MappingProxyType(
    {
        # onnxruntime.quantization
        "QuantType": ("QInt8", "QUInt8", "QFLOAT8E4M3FN", "QInt16", "QUInt16", "QInt4", "QUInt4"),
        "QuantFormat": ("QOperator", "QDQ"),
        "CalibrationMethod": ("MinMax", "Entropy", "Percentile", "Distribution"),
        # nncf
        "QuantizationMode": ("FP8_E4M3", "FP8_E5M2"),
        "QuantizationPreset": ("PERFORMANCE", "MIXED"),
        "TargetDevice": ("ANY", "CPU", "GPU", "NPU", "CPU_SPR"),
        "ModelType": ("TRANSFORMER",),
        "CompressWeightsMode": (
            "INT8_SYM",
            "INT8_ASYM",
            "INT4_SYM",
            "INT4_ASYM",
            "INT3_SYM",
            "INT2_SYM",
            "NF4",
            "CB4",
            "MXFP4",
            "MXFP8_E4M3",
            "FP8_E4M3",
            "FP4",
            "NVFP4",
            "CODEBOOK",
            "ADAPTIVE_CODEBOOK",
        ),
        "SensitivityMetric": (
            "WEIGHT_QUANTIZATION_ERROR",
            "HESSIAN_INPUT_ACTIVATION",
            "MEAN_ACTIVATION_VARIANCE",
            "MAX_ACTIVATION_VARIANCE",
            "MEAN_ACTIVATION_MAGNITUDE",
        ),
        "BackupMode": ("NONE", "INT8_SYM", "INT8_ASYM", "MXFP8_E4M3", "FP8_E4M3"),
        "CompressionFormat": ("DQ", "FQ", "FQ_LORA", "FQ_LORA_NLS"),
        "OverflowFix": ("ENABLE", "FIRST_LAYER", "DISABLE"),
        "QuantizationScheme": (
            "SYMMETRIC",
            "ASYMMETRIC",
            "SYMMETRIC_LORA",
            "SYMMETRIC_LORA_NLS",
            "ASYMMETRIC_LORA",
            "ASYMMETRIC_LORA_NLS",
        ),
        "QuantizerPropagationRule": (
            "DO_NOT_MERGE_BRANCHES",
            "MERGE_IF_ALL_BRANCHES_SAME",
            "MERGE_WITH_POTENTIAL_REQUANTIZATION",
            "MERGE_ALL_IN_ONE",
        ),
        "FP8Type": ("E4M3", "E5M2"),
        "StatisticsType": ("MAX", "MIN", "ABS_MAX", "QUANTILE", "ABS_QUANTILE", "MEAN", "RAW"),
        "AggregatorType": (
            "MEAN",
            "MAX",
            "MIN",
            "MEDIAN",
            "MEAN_NO_OUTLIERS",
            "MEDIAN_NO_OUTLIERS",
            "HISTOGRAM",
        ),
        "GroupSizeFallbackMode": ("ERROR", "IGNORE", "ADJUST"),
        "TensorDataType": (
            "float16",
            "bfloat16",
            "float32",
            "float64",
            "f8e4m3",
            "f8e5m2",
            "f8e8m0",
            "f4e2m1",
            "nf4",
            "int8",
            "int32",
            "int64",
            "uint16",
            "uint32",
            "uint8",
            "uint4",
            "int4",
            "int3",
            "int2",
        ),
    }
)

# Objects inside settings: dataclasses of NNCF, by their own names.
OBJECTS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "Subgraph": {"inputs": STRINGS, "outputs": STRINGS},
        "IgnoredScope": {
            "names": STRINGS,
            "patterns": STRINGS,
            "types": STRINGS,
            "subgraphs": "objects Subgraph",
            "validate": BOOL,
        },
        # Either QuantizationParameters or FP8QuantizationParameters, told apart by their keys.
        "QuantizationParameters": {
            "num_bits": INT,
            "mode": "enum QuantizationScheme",
            "signedness_to_force": BOOL,
            "per_channel": BOOL,
            "narrow_range": BOOL,
            "destination_type": "enum FP8Type",
        },
        "StatisticsCollectorParameters": {
            "statistics_type": "enum StatisticsType",
            "aggregator_type": "enum AggregatorType",
            "clipping_value": FLOAT,
            "quantile_outlier_prob": FLOAT,
        },
        "RangeEstimatorParameters": {
            "min": "object StatisticsCollectorParameters",
            "max": "object StatisticsCollectorParameters",
        },
        "AdvancedBiasCorrectionParameters": {"apply_for_all_nodes": BOOL, "threshold": FLOAT},
        "AdvancedSmoothQuantParameters": {"convolution": FLOAT, "matmul": FLOAT},
        "AdvancedQuantizationParameters": {
            "overflow_fix": "enum OverflowFix",
            "quantize_outputs": BOOL,
            "inplace_statistics": BOOL,
            "disable_channel_alignment": BOOL,
            "disable_bias_correction": BOOL,
            "batchwise_statistics": BOOL,
            "activations_quantization_params": "object QuantizationParameters",
            "weights_quantization_params": "object QuantizationParameters",
            "quantizer_propagation_rule": "enum QuantizerPropagationRule",
            "activations_range_estimator_params": "object RangeEstimatorParameters",
            "weights_range_estimator_params": "object RangeEstimatorParameters",
            "bias_correction_params": "object AdvancedBiasCorrectionParameters",
            "smooth_quant_alphas": "object AdvancedSmoothQuantParameters",
            "smooth_quant_alpha": FLOAT,
            "backend_params": OPTIONS,
        },
        "AdvancedAWQParameters": {
            "subset_size": INT,
            "percent_to_apply": FLOAT,
            "alpha_min": FLOAT,
            "alpha_max": FLOAT,
            "steps": INT,
            "prefer_data_aware_scaling": BOOL,
        },
        "AdvancedScaleEstimationParameters": {
            "subset_size": INT,
            "initial_steps": INT,
            "scale_steps": INT,
            "weight_penalty": FLOAT,
        },
        "AdvancedGPTQParameters": {"damp_percent": FLOAT, "block_size": INT, "subset_size": INT},
        "AdvancedLoraCorrectionParameters": {
            "adapter_rank": INT,
            "num_iterations": INT,
            "apply_regularization": BOOL,
            "subset_size": INT,
            "use_int8_adapters": BOOL,
        },
        "AdvancedAdaptiveCodebookParameters": {
            "value_type": "enum TensorDataType",
            "across_blocks": BOOL,
            "num_elements": INT,
        },
        "AdvancedCompressionParameters": {
            "lora_adapter_rank": INT,
            "group_size_fallback_mode": "enum GroupSizeFallbackMode",
            "min_adjusted_group_size": INT,
            "awq_params": "object AdvancedAWQParameters",
            "scale_estimation_params": "object AdvancedScaleEstimationParameters",
            "gptq_params": "object AdvancedGPTQParameters",
            "lora_correction_params": "object AdvancedLoraCorrectionParameters",
            "backend_params": OPTIONS,
            "codebook": NUMBERS,
            "adaptive_codebook_params": "object AdvancedAdaptiveCodebookParameters",
        },
    }
)

# Settings of the engine's classes that mean nothing in a build: a path of this machine, a folder.
LEFT_OUT: Mapping[str, Tuple[str, ...]] = MappingProxyType(
    {"AdvancedCompressionParameters": ("statistics_path",)}
)

# `extra_options`, which ONNX Runtime takes as a dict and reads by name, ignoring all others.
EXTRA_OPTIONS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "OnnxRuntimeStaticConfig": {
            "ActivationSymmetric": BOOL,
            "ActivationRestrictedAsymmetric": BOOL,
            "WeightSymmetric": BOOL,
            "EnableSubgraph": BOOL,
            "ForceQuantizeNoInputCheck": BOOL,
            "MatMulConstBOnly": BOOL,
            "AddQDQPairToWeight": BOOL,
            "OpTypesToExcludeOutputQuantization": STRINGS,
            "DedicatedQDQPair": BOOL,
            "QDQOpTypePerChannelSupportToAxis": OPTIONS,
            "CalibTensorRangeSymmetric": BOOL,
            "CalibStridedMinMax": INT,
            "CalibMovingAverage": BOOL,
            "CalibMovingAverageConstant": FLOAT,
            "CalibMaxIntermediateOutputs": INT,
            "CalibPercentile": FLOAT,
            "UseQDQContribOps": BOOL,
            "MinimumRealRange": FLOAT,
            "TensorQuantOverrides": OPTIONS,
            "QDQKeepRemovableActivations": BOOL,
            "QDQDisableWeightAdjustForInt32Bias": BOOL,
        },
        "OnnxRuntimeDynamicConfig": {
            "ActivationSymmetric": BOOL,
            "ActivationRestrictedAsymmetric": BOOL,
            "WeightSymmetric": BOOL,
            "EnableSubgraph": BOOL,
            "ForceQuantizeNoInputCheck": BOOL,
            "MatMulConstBOnly": BOOL,
        },
    }
)

_ORT_DYNAMIC: Mapping[str, str] = {
    "op_types_to_quantize": STRINGS,
    "per_channel": BOOL,
    "reduce_range": BOOL,
    "weight_type": "enum QuantType",
    "nodes_to_quantize": STRINGS,
    "nodes_to_exclude": STRINGS,
    "extra_options": "extra_options",
}
_NNCF_QUANTIZATION: Mapping[str, str] = {
    "mode": "enum QuantizationMode",
    "preset": "enum QuantizationPreset",
    "target_device": "enum TargetDevice",
    "subset_size": INT,
    "fast_bias_correction": BOOL,
    "model_type": "enum ModelType",
    "ignored_scope": "object IgnoredScope",
    "advanced_parameters": "object AdvancedQuantizationParameters",
}
_NNCF_COMPRESSION: Mapping[str, str] = {
    "mode": "enum CompressWeightsMode",
    "ratio": FLOAT,
    "group_size": INT,
    "ignored_scope": "object IgnoredScope",
    "all_layers": BOOL,
    "sensitivity_metric": "enum SensitivityMetric",
    "subset_size": INT,
    "awq": BOOL,
    "scale_estimation": BOOL,
    "gptq": BOOL,
    "lora_correction": BOOL,
    "backup_mode": "enum BackupMode",
    "compression_format": "enum CompressionFormat",
    "advanced_parameters": "object AdvancedCompressionParameters",
}

# The settings by the class that takes them: the engine's config classes, and for PT2E the
# arguments of the function that makes a quantizer's config.
SETTINGS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "OnnxRuntimeStaticConfig": {
            **_ORT_DYNAMIC,
            "quant_format": "enum QuantFormat",
            "activation_type": "enum QuantType",
            "calibrate_method": "enum CalibrationMethod",
            "calibration_providers": STRINGS,
        },
        "OnnxRuntimeDynamicConfig": _ORT_DYNAMIC,
        "NNCFQuantizationConfig": _NNCF_QUANTIZATION,
        "NNCFWeightCompressionConfig": _NNCF_COMPRESSION,
        "X86InductorQuantizer": {"is_dynamic": BOOL, "is_qat": BOOL, "reduce_range": BOOL},
        "XNNPACKQuantizer": {
            "is_per_channel": BOOL,
            "is_qat": BOOL,
            "is_dynamic": BOOL,
            "act_qmin": INT,
            "act_qmax": INT,
            "weight_qmin": INT,
            "weight_qmax": INT,
        },
    }
)


@dataclass(frozen=True)
class QuantizerType:
    """A quantizer of the engine.

    `formats` are those that it can be exported to, `key` the setting that names the class of the
    others (`config`, or for PT2E `quantizer`), `classes` what it may name, the default first.
    """

    formats: Tuple[str, ...]
    key: str
    classes: Tuple[str, ...]


_NNCF_CLASSES = ("NNCFQuantizationConfig", "NNCFWeightCompressionConfig")

QUANTIZERS: Mapping[str, QuantizerType] = MappingProxyType(
    {
        "OnnxRuntimeQuantizer": QuantizerType(
            ("onnx",), "config", ("OnnxRuntimeStaticConfig", "OnnxRuntimeDynamicConfig")
        ),
        "NNCFOnnxQuantizer": QuantizerType(("onnx",), "config", _NNCF_CLASSES),
        "NNCFOpenVINOQuantizer": QuantizerType(("openvino",), "config", _NNCF_CLASSES),
        "NNCFTorchFXQuantizer": QuantizerType(
            ("dynamo", "onnx", "openvino", "executorch"), "config", _NNCF_CLASSES
        ),
        "PT2EQuantizer": QuantizerType(
            ("dynamo", "onnx", "openvino", "executorch"),
            "quantizer",
            ("X86InductorQuantizer", "XNNPACKQuantizer"),
        ),
    }
)

_DATA_FREE_MODES = ("INT8_SYM", "INT8_ASYM")
_DATA_AWARE = ("awq", "scale_estimation", "gptq", "lora_correction")


def settings_class(quantizer: Mapping[str, Any]) -> str:
    """The class that a quantizer's settings are for: what its `config` or `quantizer` says."""
    return str(quantizer[QUANTIZERS[quantizer["type"]].key])


def own_settings(quantizer: Mapping[str, Any]) -> Mapping[str, Any]:
    """The settings of that class, without what names the quantizer and the class."""
    names = ("type", QUANTIZERS[quantizer["type"]].key)
    return {name: value for name, value in quantizer.items() if name not in names}


def is_weight_only(quantizer: Mapping[str, Any]) -> bool:
    """Whether it leaves activations alone."""
    return settings_class(quantizer) == "NNCFWeightCompressionConfig"


def is_calibrated(quantizer: Mapping[str, Any]) -> bool:
    """Whether it runs the model on samples: all but what rounds weights or activations alone."""
    name = settings_class(quantizer)
    if name == "OnnxRuntimeDynamicConfig":
        return False
    if name == "NNCFWeightCompressionConfig":
        aware = any(quantizer.get(setting) for setting in _DATA_AWARE)
        mixed = quantizer.get("ratio") not in (None, 1, 1.0)
        return aware or (mixed and quantizer.get("mode") not in _DATA_FREE_MODES)
    return not quantizer.get("is_dynamic", False)


def quantizers_of(quantizer: Optional[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Every quantizer of a spec's `quantizer`, which is one, or one for each of some components."""
    if not quantizer:
        return
    if "type" in quantizer:
        yield quantizer
    else:
        yield from quantizer.values()


def quantizer_of(
    quantizer: Optional[Mapping[str, Any]], component: str
) -> Optional[Mapping[str, Any]]:
    """The quantizer of one component, None if it is left as it is."""
    if not quantizer or "type" in quantizer:
        return quantizer or None
    return quantizer.get(component)


def has_four_bits(quantizer: Mapping[str, Any]) -> bool:
    """Whether NNCF gives weights of an ONNX graph four bits: one quantizer of a target."""
    return quantizer["type"] == "NNCFOnnxQuantizer" and str(quantizer.get("mode")).startswith(
        "INT4"
    )
