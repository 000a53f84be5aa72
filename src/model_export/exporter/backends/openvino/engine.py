"""The only place that calls the engine for OpenVINO (transformers 5.24.0)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import openvino
import torch
from transformers.exporters.exporter_openvino import OpenVINOConfig, OpenVINOExporter

from model_export.exporter.stack_traces import no_stack_traces

_ENGINE_KEYS = (
    "dynamic",
    "strict",
    "prefer_deferred_runtime_asserts_over_guards",
    "compress_to_fp16",
    "stateful",
)


def export_program(
    module: torch.nn.Module,
    inputs: dict[str, Any],
    config: Mapping[str, Any],
    dynamic_shapes: dict[str, Any] | None,
) -> openvino.Model:
    """Trace `module(**inputs)` and convert it; the model's constants share its memory."""
    options = {key: config[key] for key in _ENGINE_KEYS if key in config}
    engine_config = OpenVINOConfig(**options, dynamic_shapes=dynamic_shapes)
    with no_stack_traces():
        program, _ = OpenVINOExporter().export_program(module, inputs, engine_config)
    return program


def write_ir(model: openvino.Model, xml: Any) -> None:
    """Write `xml` and the `.bin` of the same stem, weights at the precision they have.

    `openvino.save_model` halves float32 weights unless it is told not to.
    """
    openvino.save_model(model, str(xml), compress_to_fp16=False)
