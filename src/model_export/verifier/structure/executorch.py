"""Reads what a `.pte` says about its method: dtypes, and the largest size of every dimension."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from executorch.runtime import Runtime

from model_export.manifest import ComponentRecord, Dimension, TensorRecord
from model_export.runtime.errors import first_line
from model_export.verifier.structure.found import (
    FoundDimension,
    FoundGraph,
    FoundTensor,
    UnreadableGraph,
)

# The numbers of c10::ScalarType.
_DTYPES = {
    0: "uint8",
    1: "int8",
    2: "int16",
    3: "int32",
    4: "int64",
    5: "float16",
    6: "float32",
    7: "float64",
    11: "bool",
    15: "bfloat16",
}


def inspect(artifact: Path, record: ComponentRecord, spec: Mapping[str, Any]) -> FoundGraph:
    """The graph in `record.file`.

    A `.pte` keeps no names, and of a dynamic dimension its largest size only: it agrees with the
    record where that has the same size, or the same bound.
    """
    try:
        program = Runtime.get().load_program(artifact / record.file)
        metadata = program.metadata("forward")
    except (RuntimeError, KeyError) as error:
        reason = first_line(error)
        raise UnreadableGraph(f"`{record.file}` is refused by ExecuTorch: {reason}") from error
    inputs = [metadata.input_tensor_meta(place) for place in range(metadata.num_inputs())]
    outputs = [metadata.output_tensor_meta(place) for place in range(metadata.num_outputs())]
    return FoundGraph(
        _tensors(record.inputs, inputs, record.bounds),
        _tensors(record.outputs, outputs, record.bounds),
        {},
    )


def _tensors(
    recorded: Sequence[TensorRecord], found: Sequence[Any], bounds: Mapping[str, tuple[int, int]]
) -> tuple[FoundTensor, ...]:
    named = [_tensor(record, port, bounds) for record, port in zip(recorded, found, strict=False)]
    unknown = [
        FoundTensor(f"#{place}", _dtype(port), tuple(port.sizes()))
        for place, port in enumerate(found[len(recorded) :], len(recorded))
    ]
    return (*named, *unknown)


def _tensor(
    recorded: TensorRecord, found: Any, bounds: Mapping[str, tuple[int, int]]
) -> FoundTensor:
    sizes = found.sizes()
    shape: tuple[FoundDimension, ...] = tuple(sizes)
    if len(sizes) == len(recorded.shape):
        shape = tuple(
            _dimension(size, dim, bounds) for size, dim in zip(sizes, recorded.shape, strict=True)
        )
    return FoundTensor(recorded.name, _dtype(found), shape)


def _dtype(found: Any) -> str:
    return _DTYPES.get(found.dtype(), str(found.dtype()))


def _dimension(
    largest: int, recorded: Dimension, bounds: Mapping[str, tuple[int, int]]
) -> FoundDimension:
    if isinstance(recorded, int):
        return largest
    # The bound of a sum or product of dimensions, or of an unnamed one, isn't recorded.
    _, bound = bounds.get(recorded, (0, largest))
    return None if bound == largest else largest
