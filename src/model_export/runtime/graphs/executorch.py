"""A component in ExecuTorch's runtime."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from executorch.runtime import Runtime

from model_export.manifest import ComponentRecord
from model_export.runtime.errors import ArtifactError, RuntimeModelError, first_line
from model_export.runtime.graph import Array
from model_export.runtime.graphs.inputs import check_inputs
from model_export.runtime.graphs.torch_arrays import to_array, to_tensor


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
