"""NNCF's compression of weights in ONNX graphs, with what nncf 3.4.0 gets wrong mended."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import onnx_ir
from transformers.exporters.quantizers import NNCFOnnxQuantizer

from model_export.exporter.errors import ExportError
from model_export.exporter.quantizers.quantization import Quantization
from model_export.quantizer_table import FOUR_BIT_OPSET, has_four_bits


def opset_of(wanted: int | None, quantization: Quantization) -> int | None:
    """The opset to write: `wanted` by the target, if it says any."""
    return FOUR_BIT_OPSET if wanted is None and has_four_bits(quantization.settings) else wanted


def mend_block_axes(model: onnx_ir.Model) -> None:
    """Let each `DequantizeLinear` of blocks say along which axis they lie.

    nncf 3.4.0 writes the first always, and so ONNX Runtime 1.32.0 refuses the weight of a Gemm
    with `transB` when it runs the graph: "x_scale must be ceil(Di/block_size)". Only along the
    axis of its blocks a weight has fewer scales than numbers.
    """
    for node in model.graph:
        if node.op_type != "DequantizeLinear" or "block_size" not in node.attributes:
            continue
        weight, scale = (value.const_value for value in node.inputs[:2])
        axes = [axis for axis, size in enumerate(weight.shape) if scale.shape[axis] != size]
        if axes:
            (axis,) = axes
            node.attributes["axis"] = onnx_ir.AttrInt64("axis", axis)


class FloatConvolutions(NNCFOnnxQuantizer):
    """Leaves the weights of convolutions in float32.

    nncf 3.4.0 gives them scales of another rank, which ONNX Runtime 1.32.0 refuses when it runs the
    graph (`DequantizeLinear`, "PrepareForQDQ").
    """

    def quantize(
        self, model: onnx_ir.Model, sample_inputs: dict[str, Any], export_format: Any
    ) -> onnx_ir.Model:
        from nncf import IgnoredScope

        own = copy.copy(self)
        if any(node.op_type == "Conv" for node in model.graph):
            given = self.config.ignored_scope or IgnoredScope()
            ignored = dataclasses.replace(given, types=[*given.types, "Conv"])
            own.config = dataclasses.replace(self.config, ignored_scope=ignored)
        return NNCFOnnxQuantizer.quantize(own, model, sample_inputs, export_format)


class FourBitWeights(FloatConvolutions):
    """Quantizes in the opsets in which nncf's graph is right, and mends what is wrong there."""

    def quantize(
        self, model: onnx_ir.Model, sample_inputs: dict[str, Any], export_format: Any
    ) -> onnx_ir.Model:
        """Raise ExportError below FOUR_BIT_OPSET: the converter stayed there, or was asked to."""
        opset = model.opset_imports.get("", 0)
        if opset < FOUR_BIT_OPSET:
            raise ExportError(
                "quantizer['mode']",
                f"has four bits, which nncf 3.4.0 gets wrong below opset {FOUR_BIT_OPSET}, and the "
                f"graph is written in {opset}",
                "Take an INT8 mode, or NNCFTorchFXQuantizer",
            )
        quantized = super().quantize(model, sample_inputs, export_format)
        mend_block_axes(quantized)
        return quantized
