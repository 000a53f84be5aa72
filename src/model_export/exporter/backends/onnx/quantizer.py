"""From a spec's quantizer to the engine's, for ONNX."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from typing import Any

import onnx_ir
from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType
from transformers.exporters.quantizers import (
    NNCFOnnxQuantizer,
    OnnxRuntimeDynamicConfig,
    OnnxRuntimeQuantizer,
    OnnxRuntimeStaticConfig,
)

from model_export.exporter.backends.onnx.compressed_weights import (
    FloatConvolutions,
    FourBitWeights,
)
from model_export.exporter.quantizers.fx_graph import fx_quantizer
from model_export.exporter.quantizers.quantization import Quantization
from model_export.quantizer_table import SETTINGS, has_four_bits, own_settings, settings_class

CONFIGS: Mapping[str, type] = {
    "OnnxRuntimeStaticConfig": OnnxRuntimeStaticConfig,
    "OnnxRuntimeDynamicConfig": OnnxRuntimeDynamicConfig,
}
ENUM_CLASSES: Mapping[str, Any] = {
    "CalibrationMethod": CalibrationMethod,
    "QuantFormat": QuantFormat,
    "QuantType": QuantType,
}


def build_quantizer(quantization: Quantization) -> Any:
    """The engine's quantizer for any type that ONNX exports take."""
    settings, samples = quantization.settings, list(quantization.samples)
    if settings["type"] == "OnnxRuntimeQuantizer":
        if settings_class(settings) == "OnnxRuntimeStaticConfig":
            return _FloatPositionsAndMasks(_config(settings), samples)
        return OnnxRuntimeQuantizer(_config(settings), samples)
    if settings["type"] == "NNCFOnnxQuantizer":
        from model_export.exporter.quantizers.nncf_config import nncf_config

        if settings_class(settings) == "NNCFWeightCompressionConfig":
            made = FourBitWeights if has_four_bits(settings) else FloatConvolutions
            return made(nncf_config(settings), samples)
        return NNCFOnnxQuantizer(nncf_config(settings), samples)
    return fx_quantizer(quantization)


class _FloatPositionsAndMasks(OnnxRuntimeQuantizer):
    """Leaves rotary embeddings, and what lies between attention's two products, in float32.

    ONNX Runtime 1.32.0 observes these like any other tensor, where the other quantizers know the
    patterns. A mask has the lowest float at padding, so that all scores came out as one step of
    its range; positions end at the longest sample, and keys beyond it turned around.
    """

    def quantize(
        self, model: onnx_ir.Model, sample_inputs: dict[str, Any], export_format: Any
    ) -> onnx_ir.Model:
        own = copy.copy(self)
        excluded = [*(self.config.nodes_to_exclude or ()), *float_nodes(model)]
        own.config = dataclasses.replace(self.config, nodes_to_exclude=excluded)
        return OnnxRuntimeQuantizer.quantize(own, model, sample_inputs, export_format)


def float_nodes(model: onnx_ir.Model) -> list[str]:
    """The names of the nodes that such a quantizer leaves alone, in the order of the graph.

    Of a rotary embedding: those that torch.onnx says come from a module called `rotary_emb`. Of
    scores: every softmax and all that leads to it, up to a product of matrices.
    """
    waiting = [node for node in model.graph if node.op_type == "Softmax"]
    scores: set[onnx_ir.Node] = set()
    while waiting:
        node = waiting.pop()
        if node in scores or node.op_type in ("MatMul", "Gemm"):
            continue
        scores.add(node)
        producers = (value.producer() for value in node.inputs if value is not None)
        waiting.extend(producer for producer in producers if producer is not None)
    return [
        str(node.name)
        for node in model.graph
        if node.name
        and (node in scores or "rotary_emb" in node.metadata_props.get("namespace", ""))
    ]


def _config(settings: Mapping[str, Any]) -> Any:
    name = settings_class(settings)
    arguments = {
        key: _value(SETTINGS[name][key], value) for key, value in own_settings(settings).items()
    }
    return CONFIGS[name](**arguments)


def _value(kind: str, value: Any) -> Any:
    word, _, name = kind.partition(" ")
    if word == "enum":
        return ENUM_CLASSES[name][value]
    if word == "extra_options" and "TensorQuantOverrides" in value:
        overrides = {
            tensor: [_override(item) for item in items]
            for tensor, items in value["TensorQuantOverrides"].items()
        }
        return {**value, "TensorQuantOverrides": overrides}
    return value


def _override(item: Mapping[str, Any]) -> dict[str, Any]:
    if "quant_type" not in item:
        return dict(item)
    return {**item, "quant_type": QuantType[item["quant_type"]]}
