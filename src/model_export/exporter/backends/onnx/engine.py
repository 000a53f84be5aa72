"""The only place that calls the engine for ONNX (transformers 5.24.0)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx_ir
import torch
from onnx_ir.passes.common import RemoveUnusedNodesPass
from transformers.exporters.exporter_onnx import OnnxConfig, OnnxExporter
from transformers.exporters.onnxruntime_fusions import _KEY_TRANSPOSE

from model_export.exporter.backends.onnx.fast_matching import fast_matching
from model_export.exporter.quantizers.quantization import Quantization
from model_export.exporter.stack_traces import no_stack_traces

# What the engine's config takes; our other keys decide how the file is written.
_ENGINE_KEYS = (
    "dynamic",
    "strict",
    "prefer_deferred_runtime_asserts_over_guards",
    "opset_version",
    "optimize",
    "ort_fusions",
)


def export_program(
    module: torch.nn.Module,
    inputs: dict[str, Any],
    flags: dict[str, Any],
    config: Mapping[str, Any],
    dynamic_shapes: dict[str, Any] | None,
    quantization: Quantization | None = None,
) -> onnx_ir.Model:
    """Trace `module(**inputs, **flags)` and convert it; initializers share the module's memory.

    But for those of a quantized model, which is another one.
    """
    options = {key: config[key] for key in _ENGINE_KEYS if key in config}
    quantizer = None
    if quantization is not None:
        # Imports ONNX Runtime, and NNCF for its own quantizers.
        from model_export.exporter.backends.onnx.compressed_weights import opset_of
        from model_export.exporter.backends.onnx.quantizer import build_quantizer

        quantizer = build_quantizer(quantization)
        options["opset_version"] = opset_of(options.get("opset_version"), quantization)
    engine_config = OnnxConfig(**options, dynamic_shapes=dynamic_shapes, quantizer=quantizer)
    with fast_matching(), no_stack_traces():
        program, _ = OnnxExporter().export_program(module, inputs | flags, engine_config)
    if config["optimize"]:
        transpose_keys(program)
    return program


def transpose_keys(program: onnx_ir.Model) -> None:
    """Make one operator of the transpose of each attention's keys.

    torchlib (onnxscript 0.7.0) writes ten. The engine mends that before it fuses for ONNX Runtime
    (5.24.0), and it is as good for every other runtime.
    """
    _KEY_TRANSPOSE.apply_to_model(program)
    # Or ONNX Runtime computes the shapes that nothing needs any more.
    RemoveUnusedNodesPass()(program)
