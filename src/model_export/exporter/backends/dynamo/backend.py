"""The dynamo format: ExportedPrograms in, `.pt2` archives out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from model_export.exporter.backends.dynamo.engine import DynamoConfigKeys, trace
from model_export.exporter.backends.dynamo.portable import remove_build_traces
from model_export.exporter.backends.dynamo.signature import Signature, describe
from model_export.exporter.backends.dynamo.static_cache import forget_traced_batch
from model_export.exporter.dynamic_shapes import build_dynamic_shapes
from model_export.exporter.output_flags import split_flags
from model_export.exporter.quantizers.quantization import Quantization
from model_export.manifest import ComponentRecord
from model_export.spec import ExportSpec

SUFFIX = ".pt2"


@dataclass(frozen=True)
class DynamoComponent:
    """A traced component in memory, and the names and shapes of what it takes and gives."""

    program: torch.export.ExportedProgram
    signature: Signature


class DynamoBackend:
    """Satisfies `exporter.backend.Backend` for torch.export."""

    packages: tuple[str, ...] = ()

    def check(self, spec: ExportSpec) -> None:
        """Every checked dynamo spec can be built."""

    def export(
        self,
        name: str,
        module: torch.nn.Module,
        inputs: dict[str, Any],
        spec: ExportSpec,
        quantization: Quantization | None = None,
    ) -> DynamoComponent:
        """Trace `module(**inputs)`; the program keeps `inputs` as its example inputs.

        Raises ExportError if the shapes or the strict mode that `spec` asks for don't fit.
        """
        forget_traced_batch(inputs)
        inputs, flags = split_flags(module, inputs)
        shapes = build_dynamic_shapes(module, inputs, spec)
        keys = DynamoConfigKeys.from_spec(spec, shapes.tree, quantization)
        program = trace(module, inputs | flags, keys)
        remove_build_traces(program)
        return DynamoComponent(program, describe(program, inputs, shapes.names, spec.dims))

    def save(
        self, programs: Mapping[str, DynamoComponent], directory: Path, spec: ExportSpec
    ) -> tuple[ComponentRecord, ...]:
        """Write `<component>.pt2` for each; an archive holds its own weights (docs/dynamo.md)."""
        records = []
        for name, component in programs.items():
            file = name + SUFFIX
            torch.export.save(component.program, directory / file)
            signature = component.signature
            records.append(
                ComponentRecord(
                    name, file, (), signature.inputs, signature.outputs, dict(signature.bounds)
                )
            )
        return tuple(records)
