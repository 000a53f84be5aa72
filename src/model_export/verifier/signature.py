"""Whether a graph takes and gives what its record says, and what the eager model does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from model_export.manifest import ComponentRecord, TensorRecord
from model_export.probe import GraphCase
from model_export.runtime.graph import plain_name
from model_export.verifier.probe_tensors import ProbeTensors
from model_export.verifier.results import Check
from model_export.verifier.structure.found import (
    FoundGraph,
    FoundTensor,
    UnreadableGraph,
    inspect,
)


def check_signature(
    artifact: Path,
    export_format: str,
    record: ComponentRecord,
    spec: Mapping[str, Any],
    cases: Sequence[GraphCase],
    tensors: ProbeTensors,
) -> tuple[tuple[Check, ...], FoundGraph | None]:
    """All that can be said about a component without running it; what its file says, if readable.

    `cases` are those of this component: their inputs are what the eager call takes, and an axis
    whose size differs between them has to be dynamic.
    """
    if spec["config"].get("export_params") is False:
        failure = (
            "has no parameters (`export_params=False`), so that nothing can be run; "
            "a target that wants that needs `skip_verify=True`"
        )
        return (Check("parameters", failure),), None
    try:
        found = inspect(artifact, export_format, record, spec)
    except UnreadableGraph as error:
        return (Check("graph", str(error)),), None
    checks = [Check(name, flaw) for name, flaw in found.flaws.items()]
    checks.append(Check("eager inputs", next(_missing_inputs(record, found, cases, tensors), None)))
    checks.append(Check("inputs", next(_wrong_ports("input", record.inputs, found.inputs), None)))
    checks.append(
        Check("outputs", next(_wrong_ports("output", record.outputs, found.outputs), None))
    )
    checks.append(
        Check("eager outputs", next(_missing_outputs(record, found, cases, tensors), None))
    )
    frozen = (*_frozen_by_probe(record, cases, tensors), *_frozen_by_spec(record, spec))
    checks.append(Check("dynamic dimensions", next(iter(frozen), None)))
    return tuple(checks), found


def _wrong_ports(
    side: str, recorded: Sequence[TensorRecord], found: Sequence[FoundTensor]
) -> Iterator[str]:
    wanted, got = [port.name for port in recorded], [port.name for port in found]
    for name in wanted:
        if name not in got:
            yield f"{side} `{name}` of the manifest isn't in the graph"
    for name in got:
        if name not in wanted:
            yield f"{side} `{name}` of the graph isn't in the manifest"
    if wanted != got:
        yield f"the {side}s are in the order {', '.join(got)} (expected {', '.join(wanted)})"
    for record, port in zip(recorded, found, strict=False):
        if port.dtype != record.dtype:
            yield f"{side} `{port.name}` is {port.dtype} (expected {record.dtype})"
        if not _same_shape(record, port):
            yield f"{side} `{port.name}` is {_shown(port.shape)} (expected {_shown(record.shape)})"


def _same_shape(record: TensorRecord, port: FoundTensor) -> bool:
    return len(record.shape) == len(port.shape) and all(
        isinstance(wanted, str) if got is None else got == wanted
        for wanted, got in zip(record.shape, port.shape, strict=True)
    )


def _missing_inputs(
    record: ComponentRecord,
    found: FoundGraph,
    cases: Sequence[GraphCase],
    tensors: ProbeTensors,
) -> Iterator[str]:
    """What the eager call takes and the graph doesn't: dropped; the other way round: unknown."""
    constants = _constants([case.inputs for case in cases], tensors)
    taken = {plain_name(port.name) for port in record.inputs} | set(found.states)
    for case in cases:
        for name in case.inputs:
            if name not in taken and name not in constants:
                yield (
                    f"`{name}` is an input of the eager model, but not of the graph, whose result "
                    "can't depend on it"
                )
        for name in taken - found.supplied:
            if name not in case.inputs:
                yield f"`{name}` is an input of the graph, but not of the eager model"


def _constants(sides: Sequence[Mapping[str, str]], tensors: ProbeTensors) -> set[str]:
    """Scalars with one value in every case: the length of a window, which a graph may fold in."""
    first, *others = sides
    return {
        name
        for name, key in first.items()
        if tensors.shape(key) == ()
        and all(name in side and tensors.get(side[name]) == tensors.get(key) for side in others)
    }


def _missing_outputs(
    record: ComponentRecord,
    found: FoundGraph,
    cases: Sequence[GraphCase],
    tensors: ProbeTensors,
) -> Iterator[str]:
    constants = _constants([case.outputs for case in cases], tensors)
    given = {plain_name(port.name) for port in record.outputs} | set(found.states)
    for case in cases:
        for name in case.outputs:
            if name not in given and name not in constants:
                yield f"`{name}` is an output of the eager model, but not of the graph"
        for name in given:
            if name not in case.outputs:
                yield f"`{name}` is an output of the graph, but not of the eager model"


def _frozen_by_probe(
    record: ComponentRecord, cases: Sequence[GraphCase], tensors: ProbeTensors
) -> Iterator[str]:
    for port in record.inputs:
        name = plain_name(port.name)
        shapes = {tensors.shape(case.inputs[name]) for case in cases if name in case.inputs}
        for axis, dim in enumerate(port.shape):
            sizes = {shape[axis] for shape in shapes if axis < len(shape)}
            if not isinstance(dim, int) or not sizes - {dim}:
                continue
            if len(sizes) == 1:
                yield (
                    f"input `{port.name}` has the size {dim} on axis {axis} "
                    f"(expected {sizes.pop()}, the eager model's)"
                )
            else:
                listed = ", ".join(map(str, sorted(sizes)))
                yield (
                    f"input `{port.name}` is frozen at {dim} on axis {axis}, "
                    f"where the export asks for a dynamic size (tried: {listed})"
                )


def _frozen_by_spec(record: ComponentRecord, spec: Mapping[str, Any]) -> Iterator[str]:
    """Axes that the target's `dynamic_shapes` lists by a name of its own."""
    for name, shape in (spec["config"].get("dynamic_shapes") or {}).items():
        for port in record.inputs:
            plain = plain_name(port.name)
            # The items of a list go to the tensors of a cache one by one; the probe covers those.
            if not isinstance(shape, Mapping) or not (
                plain == name or plain.startswith(f"{name}.")
            ):
                continue
            for axis, dim in shape.items():
                place = int(axis)
                if dim in ("STATIC", "AUTO") or place >= len(port.shape):
                    continue
                if isinstance(port.shape[place], int):
                    yield (
                        f"input `{port.name}` is frozen at {port.shape[place]} on axis {axis}, "
                        f"which `dynamic_shapes` calls {dim!r}"
                    )


def _shown(shape: Iterable[int | str | None]) -> str:
    return "[" + ", ".join("?" if size is None else str(size) for size in shape) + "]"
