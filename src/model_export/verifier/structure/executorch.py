"""Reads what a `.pte` says about its method: dtypes, the largest sizes, and what is delegated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from executorch.runtime import Runtime

from model_export.manifest import ComponentRecord, Dimension, TensorRecord
from model_export.runtime.errors import first_line
from model_export.runtime.graphs.pte_delegates import Delegation, read_delegation
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

# The delegates that the runtime of some platforms only has, by `config['backend']`.
_ELSEWHERE = {"cuda": "CudaBackend", "mlx": "MLXBackend"}


def inspect(artifact: Path, record: ComponentRecord, spec: Mapping[str, Any]) -> FoundGraph:
    """The graph in `record.file`.

    A `.pte` keeps no names, and of a dynamic dimension its largest size only: it agrees with the
    record where that has the same size, or the same bound.
    """
    try:
        program = Runtime.get().load_program(artifact / record.file)
        metadata = program.metadata("forward")
        delegation = read_delegation(artifact / record.file)
    except (RuntimeError, KeyError) as error:
        reason = first_line(error)
        raise UnreadableGraph(f"`{record.file}` is refused by ExecuTorch: {reason}") from error
    inputs = [metadata.input_tensor_meta(place) for place in range(metadata.num_inputs())]
    outputs = [metadata.output_tensor_meta(place) for place in range(metadata.num_outputs())]
    backend = spec["config"].get("backend", "xnnpack")
    return FoundGraph(
        _tensors(record.inputs, inputs, record.bounds),
        _tensors(record.outputs, outputs, record.bounds),
        {"delegation": misdelegated(backend, delegation)} if backend in _ELSEWHERE else {},
        unrunnable=_unrunnable(backend),
    )


def misdelegated(backend: str, found: Delegation) -> str | None:
    """What is wrong with a graph that is meant for one processor, with its one runtime.

    XNNPACK's graphs run outside of it, too, on the same CPU. What MLX leaves over would be copied
    from the GPU and back at each call, and its operators may not be linked into the app at all.
    """
    wanted = _ELSEWHERE[backend]
    others = sorted({name for name in found.delegates if name != wanted})
    if others or not found.delegates:
        return f"the graph goes to {' and '.join(others) or 'no delegate'} (expected {wanted})"
    if backend == "mlx" and found.operators:
        return f"{', '.join(found.operators)} is left over outside of {wanted}"
    if backend == "mlx" and len(found.delegates) > 1:
        return f"the graph is cut into {len(found.delegates)} delegates of {wanted} (expected 1)"
    return None


def _unrunnable(backend: str) -> str | None:
    delegate = _ELSEWHERE.get(backend)
    if delegate is None or Runtime.get().backend_registry.is_available(delegate):
        return None
    return f"its ExecuTorch has no {delegate}"


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
