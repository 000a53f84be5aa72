"""From a spec's quantizer to the engine's, for OpenVINO."""

from __future__ import annotations

from typing import Any

from model_export.exporter.quantizers.fx_graph import fx_quantizer
from model_export.exporter.quantizers.quantization import Quantization


def build_quantizer(quantization: Quantization) -> Any:
    """The engine's quantizer for any type that OpenVINO exports take."""
    if quantization.settings["type"] == "NNCFOpenVINOQuantizer":
        from transformers.exporters.quantizers import NNCFOpenVINOQuantizer

        from model_export.exporter.quantizers.nncf_config import nncf_config

        return NNCFOpenVINOQuantizer(nncf_config(quantization.settings), list(quantization.samples))
    return fx_quantizer(quantization)
