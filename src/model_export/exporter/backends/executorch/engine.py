"""The one place that calls transformers' ExecuTorch exporter."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from executorch.exir.error import InternalError
from executorch.exir.program import ExecutorchProgramManager
from transformers.exporters import DynamoExporter, ExecutorchConfig, ExecutorchExporter
from transformers.exporters.exporter_dynamo import (
    get_auto_dynamic_shapes,
    register_cache_pytrees_for_model,
)

from model_export.exporter.backends.dynamo.engine import (
    DynamoConfigKeys,
    EngineModule,
    explained,
)
from model_export.exporter.backends.dynamo.static_cache import batch_forgotten
from model_export.exporter.backends.executorch import sym_ops  # noqa: F401  Registers a patch.
from model_export.exporter.backends.executorch.mlx_gather import dynamic_gathers
from model_export.exporter.backends.executorch.mlx_order import ordered_slots
from model_export.exporter.backends.executorch.partitions import partitions_cut_in_place
from model_export.exporter.backends.executorch.unchanged_graphs import unchanged_graphs_kept
from model_export.exporter.backends.executorch.upper_bounds import exact_upper_bounds
from model_export.exporter.backends.executorch.whole_convolutions import whole_convolutions
from model_export.exporter.errors import ExportError
from model_export.exporter.stack_traces import no_stack_traces
from model_export.spec import ExportSpec

# What is mended in a delegate's own lowering.
_MENDED: Mapping[str, tuple[Callable[[], AbstractContextManager[None]], ...]] = {
    "mlx": (dynamic_gathers, ordered_slots),
}


@dataclass(frozen=True)
class ExecutorchConfigKeys:
    """The keys of `config` that ExecuTorch adds to Dynamo's."""

    backend: str
    alloc_graph_input: bool
    alloc_graph_output: bool
    alloc_mutable_buffers: bool

    @classmethod
    def from_spec(cls, spec: ExportSpec) -> ExecutorchConfigKeys:
        """The keys as `spec` has them."""
        return cls(**{field.name: spec.config[field.name] for field in fields(cls)})


class _ObservedTracer(DynamoExporter):
    """The base class that ExecutorchExporter traces with, showing what it traced."""

    def export_program(self, model: Any, sample_inputs: Any, config: Any) -> Any:
        program, metadata = super().export_program(model, sample_inputs, config)
        self._on_traced(program)
        return program, metadata

    _on_traced: Callable[[torch.export.ExportedProgram], None]


class _ObservedExporter(ExecutorchExporter, _ObservedTracer):
    """ExecutorchExporter with `_ObservedTracer` between it and DynamoExporter."""

    def __init__(self, on_traced: Callable[[torch.export.ExportedProgram], None]) -> None:
        super().__init__()
        self._on_traced = on_traced


def every_dimension(module: EngineModule, inputs: dict[str, Any]) -> dict[str, Any]:
    """The shapes that `dynamic=True` stands for: AUTO at each axis of each tensor of `inputs`."""
    register_cache_pytrees_for_model(module)
    shapes: dict[str, Any] = get_auto_dynamic_shapes(dict(inputs))
    return shapes


def lower(
    module: EngineModule,
    inputs: dict[str, Any],
    tracing: DynamoConfigKeys,
    keys: ExecutorchConfigKeys,
    longest: int | None,
    on_traced: Callable[[torch.export.ExportedProgram], None],
) -> ExecutorchProgramManager:
    """`module(**inputs)` traced, delegated and planned; its one method is `forward`.

    `on_traced` gets the program between tracing and lowering, which changes it in place.

    Every dynamic dimension of `tracing.dynamic_shapes` needs an upper bound. `longest`, if any,
    limits sums of dimensions (a cache and what is added to it). Raises ExportError if the module
    doesn't fit `dynamic_shapes`, strict mode or the memory plan.
    """
    config = ExecutorchConfig(**vars(tracing), **vars(keys))
    with (
        no_stack_traces(),
        batch_forgotten(),
        whole_convolutions(),
        _errors_only(),
        explained(),
        _planning_explained(),
        exact_upper_bounds(longest),
        unchanged_graphs_kept(),
        partitions_cut_in_place(),
        ExitStack() as mended,
    ):
        for mend in _MENDED.get(keys.backend, ()):
            mended.enter_context(mend())
        program, _ = _ObservedExporter(on_traced).export_program(module, inputs, config)
    return program


def write(program: ExecutorchProgramManager, path: Path) -> tuple[str, ...]:
    """Stream a lowered program to a `.pte`; the names of the files of its weights beside it.

    Those are there for a delegate that keeps its weights out of the program, as CUDA's does. The
    engine leaves them out (transformers 5.24.0, `save_program`), and ExecuTorch names them after
    the delegate, so that the components of a model would write over each other's.
    """
    ExecutorchExporter.save_program(program, path)
    weights = []
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        program.write_tensor_data_to_file(folder)
        for file in sorted(Path(folder).iterdir()):
            weights.append(f"{path.stem}.{file.name}")
            file.rename(path.with_name(weights[-1]))
    return tuple(weights)


@contextmanager
def _planning_explained() -> Iterator[None]:
    """Turn the emitter's refusal of an unplanned buffer into an ExportError (executorch 1.3.1)."""
    try:
        yield
    except InternalError as error:
        if "Mutable buffer" not in str(error):
            raise
        raise ExportError(
            "config['alloc_mutable_buffers']",
            "is False, but this model keeps state in a buffer of its own, which has to be planned",
            "Set it to True; a cache that is an input doesn't need it",
        ) from error


@contextmanager
def _errors_only() -> Iterator[None]:
    """Silence the engine's warning that 5.24.0 was tested with a newer torch and executorch.

    Our pins are the pair of the user guide, and the tests run what they build.
    """
    engine = logging.getLogger("transformers.exporters")
    level = engine.level
    engine.setLevel(logging.ERROR)
    try:
        yield
    finally:
        engine.setLevel(level)
