"""The quantizers of the support table: each of the engine's, in the ways that differ in kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_WEIGHTS = "NNCFWeightCompressionConfig"
# The tiny models have channels of 32 and 64.
_INT4 = {
    "mode": "INT4_SYM",
    "group_size": 16,
    "advanced_parameters": {"group_size_fallback_mode": "ADJUST"},
}


@dataclass(frozen=True)
class Quantizer:
    """A column of the quantizers' table: what a BUILD file would say, and for which formats."""

    name: str
    formats: tuple[str, ...]
    settings: Mapping[str, Any]


QUANTIZERS = (
    Quantizer(
        "ONNX Runtime static",
        ("onnx",),
        {"type": "OnnxRuntimeQuantizer", "config": "OnnxRuntimeStaticConfig", "per_channel": True},
    ),
    Quantizer(
        "ONNX Runtime dynamic",
        ("onnx",),
        {"type": "OnnxRuntimeQuantizer", "config": "OnnxRuntimeDynamicConfig"},
    ),
    Quantizer("NNCF int8", ("onnx",), {"type": "NNCFOnnxQuantizer"}),
    Quantizer("NNCF 8-bit weights", ("onnx",), {"type": "NNCFOnnxQuantizer", "config": _WEIGHTS}),
    Quantizer(
        "NNCF 4-bit weights",
        ("onnx",),
        {"type": "NNCFOnnxQuantizer", "config": _WEIGHTS, **_INT4},
    ),
    Quantizer("NNCF int8", ("openvino",), {"type": "NNCFOpenVINOQuantizer"}),
    Quantizer(
        "NNCF 8-bit weights", ("openvino",), {"type": "NNCFOpenVINOQuantizer", "config": _WEIGHTS}
    ),
    Quantizer(
        "NNCF 4-bit weights",
        ("openvino",),
        {"type": "NNCFOpenVINOQuantizer", "config": _WEIGHTS, **_INT4},
    ),
    Quantizer(
        "NNCF TorchFX 8-bit weights",
        ("dynamo", "onnx", "openvino", "executorch"),
        {"type": "NNCFTorchFXQuantizer", "config": _WEIGHTS},
    ),
    Quantizer(
        "NNCF TorchFX 4-bit weights",
        ("dynamo", "onnx"),
        {"type": "NNCFTorchFXQuantizer", "config": _WEIGHTS, **_INT4},
    ),
    Quantizer(
        "PT2E X86Inductor static",
        ("dynamo", "onnx", "openvino"),
        {"type": "PT2EQuantizer", "quantizer": "X86InductorQuantizer"},
    ),
    Quantizer(
        "PT2E X86Inductor dynamic",
        ("dynamo",),
        {"type": "PT2EQuantizer", "quantizer": "X86InductorQuantizer", "is_dynamic": True},
    ),
    Quantizer(
        "PT2E XNNPACK static, by tensor",
        ("executorch",),
        {"type": "PT2EQuantizer", "quantizer": "XNNPACKQuantizer"},
    ),
    Quantizer(
        "PT2E XNNPACK static, by channel",
        ("executorch",),
        {"type": "PT2EQuantizer", "quantizer": "XNNPACKQuantizer", "is_per_channel": True},
    ),
    Quantizer(
        "PT2E XNNPACK dynamic, by channel",
        ("executorch",),
        {
            "type": "PT2EQuantizer",
            "quantizer": "XNNPACKQuantizer",
            "is_per_channel": True,
            "is_dynamic": True,
        },
    ),
)
