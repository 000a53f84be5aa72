"""The ONNX backend: checks, the export of one component, and the files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx_ir
import torch

from model_export.exporter.backends.onnx.engine import export_program
from model_export.exporter.backends.onnx.passes import normalise
from model_export.exporter.backends.onnx.serialise import write_programs
from model_export.exporter.dynamic_shapes import build_dynamic_shapes
from model_export.exporter.errors import ExportError
from model_export.exporter.mapped_weights import release_mapped_pages
from model_export.exporter.output_flags import split_flags
from model_export.exporter.quantizers.quantization import Quantization
from model_export.exporter.strict_mode import refuse_strict
from model_export.manifest import ComponentRecord
from model_export.spec import ExportSpec

# torch 2.12.0 writes opset 18 and onnxscript 0.7.0 converts from there. Outside this range its
# converter logs a warning and leaves the graph at 18: asked for 10, 17 or 26, all came out as 18.
LOWEST_OPSET = 18
HIGHEST_OPSET = 25


class OnnxBackend:
    """Satisfies `model_export.exporter.backend.Backend`; its programs are `onnx_ir.Model`s."""

    packages: tuple[str, ...] = ("onnx", "onnxscript", "onnx-ir")

    def check(self, spec: ExportSpec) -> None:
        """Raise ExportError for strict mode, and for an opset that the engine doesn't write."""
        refuse_strict(spec)
        opset = spec.config["opset_version"]
        if opset is not None and not LOWEST_OPSET <= opset <= HIGHEST_OPSET:
            raise ExportError(
                "config['opset_version']",
                f"is {opset}, which the engine doesn't write",
                f"Choose one from {LOWEST_OPSET} to {HIGHEST_OPSET}",
            )

    def export(
        self,
        name: str,
        module: torch.nn.Module,
        inputs: dict[str, Any],
        spec: ExportSpec,
        quantization: Quantization | None = None,
    ) -> onnx_ir.Model:
        """Export one component; its initializers stay views of the module's weights.

        Raises ExportError if the graph can't be brought to the opset that was asked for.
        """
        release_mapped_pages(tensor.data_ptr() for tensor in module.state_dict().values())
        inputs, flags = split_flags(module, inputs)
        shapes = build_dynamic_shapes(module, inputs, spec)
        model = export_program(module, inputs, flags, spec.config, shapes.tree, quantization)
        wanted, got = spec.config["opset_version"], model.opset_imports.get("")
        if wanted is not None and got != wanted:
            raise ExportError(
                "config['opset_version']",
                f"is {wanted}, but `{name}` has an operator that can't be brought there from {got}",
                f"Remove it, or choose {got}",
            )
        normalise(model, shapes.names, spec.config["optimize"])
        return model

    def save(
        self, programs: Mapping[str, Any], directory: Path, spec: ExportSpec
    ) -> tuple[ComponentRecord, ...]:
        """Write `<component>.onnx` each, and `model.onnx.data` for the weights of all."""
        return write_programs(programs, directory, spec)
