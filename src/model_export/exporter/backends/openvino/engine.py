"""The only place that calls the engine for OpenVINO (transformers 5.24.0)."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

import openvino
import torch
from torch.export import ExportedProgram
from transformers import PreTrainedModel
from transformers.exporters.exporter_dynamo import DynamoConfig, DynamoExporter
from transformers.exporters.exporter_openvino import OpenVINOConfig, OpenVINOExporter
from transformers.exporters.utils import get_leaf_tensors

from model_export.exporter.dynamic_shapes import traced_size
from model_export.exporter.quantizers.quantization import Quantization
from model_export.exporter.stack_traces import no_stack_traces

_ENGINE_KEYS = (
    "dynamic",
    "strict",
    "prefer_deferred_runtime_asserts_over_guards",
    "compress_to_fp16",
    "stateful",
)


@dataclass(frozen=True)
class Converted:
    """A model, and the shape that the trace gave each input tensor: None where it may change."""

    model: openvino.Model
    shapes: Mapping[str, tuple[int | None, ...]]


def export_program(
    module: torch.nn.Module,
    inputs: dict[str, Any],
    flags: dict[str, Any],
    config: Mapping[str, Any],
    dynamic_shapes: dict[str, Any] | None,
    quantization: Quantization | None = None,
) -> Converted:
    """Trace `module(**inputs, **flags)` and convert it; the model's constants share its memory."""
    quantizer = None
    if quantization is not None:
        from model_export.exporter.backends.openvino.quantizer import build_quantizer

        quantizer = build_quantizer(quantization)
    options = {key: config[key] for key in _ENGINE_KEYS if key in config}
    engine_config = OpenVINOConfig(**options, dynamic_shapes=dynamic_shapes, quantizer=quantizer)
    exporter = _Exporter()
    with no_stack_traces():
        model, _ = exporter.export_program(module, inputs | flags, engine_config)
    return Converted(model, dict(zip(get_leaf_tensors(inputs), exporter.shapes, strict=True)))


class _KeepsShapes(DynamoExporter):
    """Keeps the input shapes of the trace, which a converted model has lost (5.24.0)."""

    shapes: tuple[tuple[int | None, ...], ...]

    def export_program(
        self,
        model: PreTrainedModel,
        sample_inputs: MutableMapping[str, Any],
        config: DynamoConfig,
    ) -> tuple[ExportedProgram, Any]:
        program, metadata = super().export_program(model, sample_inputs, config)
        inputs = set(program.graph_signature.user_inputs)
        values = [node.meta.get("val") for node in program.graph.nodes if node.name in inputs]
        self.shapes = tuple(
            tuple(_number(size) for size in value.shape)
            for value in values
            if isinstance(value, torch.Tensor)
        )
        return program, metadata


def _number(size: int | torch.SymInt) -> int | None:
    traced = traced_size(size)
    return traced if isinstance(traced, int) else None


class _Exporter(OpenVINOExporter, _KeepsShapes):
    """The engine's; `super().export_program` of it is that of _KeepsShapes."""


def write_ir(model: openvino.Model, xml: Any) -> None:
    """Write `xml` and the `.bin` of the same stem, weights at the precision they have.

    `openvino.save_model` halves float32 weights unless it is told not to.
    """
    openvino.save_model(model, str(xml), compress_to_fp16=False)
