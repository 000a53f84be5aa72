"""A component in ExecuTorch's runtime."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from executorch.runtime import Runtime

from model_export.manifest import ComponentRecord
from model_export.runtime.errors import ArtifactError, RuntimeModelError, first_line
from model_export.runtime.graph import Array
from model_export.runtime.graphs.inputs import check_inputs
from model_export.runtime.graphs.pte_delegates import read_delegation
from model_export.runtime.graphs.torch_arrays import to_array, to_tensor

# Where there are runtimes with a delegate that not every wheel has.
_PLATFORMS = {"MLXBackend": "on Apple Silicon", "CudaBackend": "where a CUDA GPU is"}


class ExecutorchGraph:
    """Satisfies `model_export.runtime.graph.Graph`."""

    def __init__(self, record: ComponentRecord, method: Any) -> None:
        self.record = record
        self._method = method

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """One call; arrays that the caller may keep. Raises InputError for what doesn't fit."""
        check_inputs(self.record, inputs)
        # A copy: the program may write to its inputs.
        feeds = [to_tensor(inputs[tensor.name], tensor.dtype) for tensor in self.record.inputs]
        # Results are views of the program's own memory, which the next call overwrites.
        results = execute(self.record, self._method, feeds)
        return {
            tensor.name: to_array(result)
            for tensor, result in zip(self.record.outputs, results, strict=True)
        }


def open_graph(folder: Path, record: ComponentRecord, device: str = "cpu") -> ExecutorchGraph:
    """Load the component. Raises ArtifactError if ExecuTorch can't."""
    return ExecutorchGraph(record, open_method(folder, record))


def open_method(folder: Path, record: ComponentRecord) -> Any:
    """The program's one method. Raises ArtifactError if ExecuTorch can't load it."""
    path = folder / record.file
    try:
        method = Runtime.get().load_program(path).load_method("forward")
    except (RuntimeError, KeyError) as error:
        _check_delegates(path)
        reason = first_line(error)
        raise ArtifactError(
            f"ExecuTorch can't load {record.file}: {reason}. Export it again, with the release of "
            "executorch that will run it or an older one."
        ) from error
    for side, named, count in (
        ("inputs", record.inputs, method.metadata.num_inputs()),
        ("outputs", record.outputs, method.metadata.num_outputs()),
    ):
        if len(named) != count:
            raise ArtifactError(
                f"{record.file} has {count} {side} and its manifest {len(named)}: export it again."
            )
    return method


def _check_delegates(path: Path) -> None:
    """Raise ArtifactError if a program that doesn't load goes to what this runtime hasn't.

    ExecuTorch 1.3.1 says no more than `error: 0x:20`.
    """
    registry = Runtime.get().backend_registry
    try:
        delegates = read_delegation(path).delegates
    except (ValueError, struct.error):  # No program at all: what ExecuTorch said of it stands.
        return
    for delegate in delegates:
        if not registry.is_available(delegate):
            where = _PLATFORMS.get(delegate, "with an ExecuTorch that has it")
            raise ArtifactError(
                f"{path.name} runs on {delegate}, which the ExecuTorch of this machine hasn't: "
                f"run it {where}."
            )


def execute(record: ComponentRecord, method: Any, feeds: list[Any]) -> list[Any]:
    """Call the method. Raises RuntimeModelError with ExecuTorch's error code if it fails."""
    try:
        return list(method.execute(feeds))
    except RuntimeError as error:
        reason = first_line(error)
        shapes = ", ".join(
            f"{tensor.name} {list(feed.shape)}"
            for tensor, feed in zip(record.inputs, feeds, strict=True)
        )
        raise RuntimeModelError(
            f"`{record.name}` failed in ExecuTorch ({reason}) for {shapes}: "
            "look for the limits of its shapes in the manifest's `bounds`."
        ) from error
