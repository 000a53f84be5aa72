"""The one place that calls transformers' Dynamo exporter."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch._dynamo.exc import Unsupported, UserError
from transformers.exporters import DynamoConfig, DynamoExporter

from model_export.exporter.errors import ExportError
from model_export.exporter.quantizers.fx_graph import fx_quantizer
from model_export.exporter.quantizers.quantization import Quantization
from model_export.exporter.stack_traces import no_stack_traces
from model_export.spec import ExportSpec

# Components are plain modules, too; the engine takes them and says PreTrainedModel.
EngineModule: TypeAlias = Any


@dataclass(frozen=True)
class DynamoConfigKeys:
    """The keys of `config` that steer tracing, `dynamic_shapes` as torch.export takes it.

    `quantizer` is the engine's, for the traced graph.
    """

    dynamic: bool
    strict: bool
    dynamic_shapes: Any
    prefer_deferred_runtime_asserts_over_guards: bool
    quantizer: Any = None

    @classmethod
    def from_spec(
        cls, spec: ExportSpec, dynamic_shapes: Any, quantization: Quantization | None = None
    ) -> DynamoConfigKeys:
        """The keys as `spec` has them, but for shapes and quantizer of the component at hand."""
        return cls(
            dynamic=spec.config["dynamic"],
            strict=spec.config["strict"],
            dynamic_shapes=dynamic_shapes,
            prefer_deferred_runtime_asserts_over_guards=spec.config[
                "prefer_deferred_runtime_asserts_over_guards"
            ],
            quantizer=None if quantization is None else fx_quantizer(quantization),
        )


def trace(
    module: EngineModule, inputs: dict[str, Any], keys: DynamoConfigKeys
) -> torch.export.ExportedProgram:
    """`module(**inputs)` as an ExportedProgram; `inputs` with their flags.

    Raises ExportError if the module doesn't fit `dynamic_shapes` or strict mode.
    """
    with no_stack_traces(), explained():
        program, _ = DynamoExporter().export_program(module, inputs, DynamoConfig(**vars(keys)))
    return program


@contextmanager
def explained() -> Iterator[None]:
    """Turn the tracer's refusals into ExportErrors that name the config key at fault."""
    try:
        yield
    except Unsupported as error:
        raise ExportError(
            "config['strict']",
            f"is True, and Dynamo can't trace this model: {_first_line(error)}",
            "Set it to False",
        ) from error
    except UserError as error:
        raise ExportError(
            "config['dynamic_shapes']",
            f"doesn't fit what the model computes: {_first_line(error)}",
            "Follow the engine's suggestion above, or set"
            " prefer_deferred_runtime_asserts_over_guards to True",
        ) from error


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__
