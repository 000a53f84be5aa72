"""The ExecuTorch format: lowered programs in, `.pte` files out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from executorch.exir.program import ExecutorchProgramManager

from model_export.exporter.backends.dynamo.engine import DynamoConfigKeys
from model_export.exporter.backends.dynamo.signature import Signature, describe
from model_export.exporter.backends.executorch.bounds import (
    DefaultBounds,
    bound_every_dimension,
    has_given_bounds,
)
from model_export.exporter.backends.executorch.engine import (
    ExecutorchConfigKeys,
    every_dimension,
    lower,
    write,
)
from model_export.exporter.backends.executorch.flatc import use_packaged_flatc
from model_export.exporter.backends.executorch.mlx_serializers import use_generated_serializers
from model_export.exporter.backends.executorch.mutated_inputs import with_mutated_inputs
from model_export.exporter.dynamic_shapes import build_dynamic_shapes
from model_export.exporter.errors import ExportError
from model_export.exporter.output_flags import split_flags
from model_export.exporter.quantizers.quantization import Quantization
from model_export.manifest import ComponentRecord
from model_export.spec import ExportSpec

SUFFIX = ".pte"


@dataclass(frozen=True)
class ExecutorchComponent:
    """A lowered component in memory, and the names and shapes of what it takes and gives."""

    program: ExecutorchProgramManager
    signature: Signature


class ExecutorchBackend:
    """Satisfies `exporter.backend.Backend` for ExecuTorch and each of its delegates."""

    packages: tuple[str, ...] = ("executorch",)

    def check(self, spec: ExportSpec) -> None:
        """Raise ExportError for a delegate that can't be lowered to here, or not like this."""
        backend = spec.config["backend"]
        if backend == "cuda" and not torch.cuda.is_available():
            raise ExportError(
                "config['backend']",
                "is 'cuda', and torch finds no CUDA GPU here",
                "Export it on a machine that has one, with nvcc",
            )
        if backend == "mlx":
            if spec.has_static_cache:
                raise ExportError(
                    "generation_config['cache_implementation']",
                    "is 'static', which MLX can't be lowered to",
                    "Remove it",
                )
            use_generated_serializers()

    def export(
        self,
        name: str,
        module: torch.nn.Module,
        inputs: dict[str, Any],
        spec: ExportSpec,
        quantization: Quantization | None = None,
    ) -> ExecutorchComponent:
        """Trace `module(**inputs)` and lower it, every dynamic dimension bounded.

        Raises ExportError if the shapes or the strict mode that `spec` asks for don't fit.
        """
        use_packaged_flatc()
        inputs, flags = split_flags(module, inputs)
        shapes = build_dynamic_shapes(module, inputs, spec)
        tree, longest = shapes.tree, None
        if tree is None and spec.config["dynamic"]:
            tree = every_dimension(module, inputs)
        if tree is not None:
            bounds = DefaultBounds.of(module, inputs)
            longest = None if has_given_bounds(tree) else bounds.sequence
            tree = bound_every_dimension(tree, inputs, bounds)
        tracing = DynamoConfigKeys.from_spec(spec, tree, quantization)
        delegation = ExecutorchConfigKeys.from_spec(spec)
        traced: list[Signature] = []

        def describe_traced(exported: torch.export.ExportedProgram) -> None:
            traced.append(describe(exported, inputs, shapes.names, spec.dims))

        program = lower(module, inputs | flags, tracing, delegation, longest, describe_traced)
        return ExecutorchComponent(program, with_mutated_inputs(traced[0], program))

    def save(
        self, programs: Mapping[str, ExecutorchComponent], directory: Path, spec: ExportSpec
    ) -> tuple[ComponentRecord, ...]:
        """Write `<component>.pte` for each; each has its own weights (docs/executorch.md)."""
        records = []
        for name, component in programs.items():
            file = name + SUFFIX
            weights = write(component.program, directory / file)
            signature = component.signature
            records.append(
                ComponentRecord(
                    name, file, weights, signature.inputs, signature.outputs, dict(signature.bounds)
                )
            )
        return tuple(records)
