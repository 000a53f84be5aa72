"""What one component is quantized with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from model_export.quantizer_table import quantizers_of
from model_export.spec import ExportSpec

_PACKAGES = {
    "OnnxRuntimeQuantizer": ("onnxruntime",),
    "NNCFOnnxQuantizer": ("nncf", "onnxruntime"),
    "NNCFOpenVINOQuantizer": ("nncf",),
    "NNCFTorchFXQuantizer": ("nncf",),
    "PT2EQuantizer": ("torchao",),
}


@dataclass(frozen=True)
class Quantization:
    """A quantizer of the spec, and the calibration samples as forward kwargs of the component.

    Without samples, a quantizer that needs some calibrates on the inputs that are traced.
    """

    settings: Mapping[str, Any]
    samples: tuple[dict[str, Any], ...] = ()


def quantizer_packages(spec: ExportSpec) -> tuple[str, ...]:
    """The distributions that quantize, whose versions the manifest records."""
    names = {name for item in quantizers_of(spec.quantizer) for name in _PACKAGES[item["type"]]}
    return tuple(sorted(names))
