"""Runs one component on the inputs of a probe and compares every output with the eager model's."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from model_export.probe import GraphCase
from model_export.runtime.graph import Array, Graph, numpy_dtype, plain_name
from model_export.verifier.differences import Difference, agreement, measure, not_finite
from model_export.verifier.padding import real_positions
from model_export.verifier.probe_tensors import ProbeTensors
from model_export.verifier.results import CaseResult, Check
from model_export.verifier.tolerance import Bounds

LOGITS = "logits"


def run_case(
    graph: Graph,
    case: GraphCase,
    tensors: ProbeTensors,
    states: Mapping[str, str],
    bounds: Bounds,
) -> CaseResult:
    """One call of the graph; a check for every output, what isn't a cache first.

    `states` are the dtypes of inputs that the graph keeps by itself, by their plain names.
    """
    start = time.monotonic()
    try:
        inputs = _named_inputs(graph, case, tensors, states)
        outputs = graph.run(inputs)
    # Whatever a runtime raises for inputs that the eager model takes is the verdict on the graph.
    except Exception as error:
        checks: tuple[Check, ...] = (Check("call", f"the call fails with {described(error)}"),)
    else:
        masks = _masks(case, tensors)
        compared = [
            _compare(name, output, case, tensors, masks, bounds) for name, output in outputs.items()
        ]
        checks = tuple(sorted(compared, key=lambda check: "cache." in check.name))
    return CaseResult(case.component, case.name, checks, time.monotonic() - start)


def described(error: BaseException) -> str:
    """`Type: first line` of an error, without its full stop."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0].rstrip('.')}" if lines else type(error).__name__


def _named_inputs(
    graph: Graph, case: GraphCase, tensors: ProbeTensors, states: Mapping[str, str]
) -> dict[str, Array]:
    """The inputs under the graph's own names; those of a state as if it were an input.

    A probe keeps half precision as float32, which holds it exactly; the graph gets its own dtype.
    Inputs that a graph may lack are left out: the check of its signature has judged them.
    """
    ports = {plain_name(port.name): (port.name, port.dtype) for port in graph.record.inputs}
    ports.update({name: (f"input.{name}", dtype) for name, dtype in states.items()})
    inputs = {}
    for name, key in case.inputs.items():
        if name not in ports:
            continue
        port, dtype = ports[name]
        tensor = tensors.get(key)
        inputs[port] = tensor.astype(numpy_dtype(dtype)) if tensor.dtype.kind == "f" else tensor
    return inputs


def _masks(case: GraphCase, tensors: ProbeTensors) -> Mapping[str, Array]:
    """The input that marks padding, and the others of its argument: one mask a layer type."""
    if case.padding is None:
        return {}
    root = case.padding.partition(".")[0]
    return tensors.get_all(
        {name: key for name, key in case.inputs.items() if name.partition(".")[0] == root}
    )


def _compare(
    name: str,
    got: Array,
    case: GraphCase,
    tensors: ProbeTensors,
    masks: Mapping[str, Array],
    bounds: Bounds,
) -> Check:
    plain = plain_name(name)
    if plain not in case.outputs:
        return Check(name, f"`{name}` is an output of the graph, but not of the eager model")
    expected = tensors.get(case.outputs[plain])
    if got.shape != expected.shape:
        shapes = f"{list(got.shape)} (expected {list(expected.shape)})"
        return Check(name, f"`{name}` has the shape {shapes}")
    if not _same_kind(got.dtype, expected.dtype):
        return Check(name, f"`{name}` is {got.dtype} (expected {expected.dtype})")
    if got.size == 0:
        return Check(name)
    subject = f"`{name}` {list(got.shape)}"
    index = not_finite(expected, got)
    if index is not None:
        return Check(
            name, f"{subject} is {got[index]} at {list(index)} (expected {expected[index]:.6g})"
        )
    real = None
    if case.padding is not None:
        real = real_positions(plain, got.shape, case.padding, masks)
    difference = measure(expected, got, real)
    figures = {
        "max_abs": difference.max_abs,
        "max_rel": difference.max_rel,
        "cosine": difference.cosine,
    }
    if got.dtype.kind != "f":
        failure = None if difference.max_abs == 0.0 else differing(subject, difference, 0.0)
        return Check(name, failure, figures)
    allowed = bounds.allowed(difference.scale)
    failures = list(too_far(subject, difference, bounds))
    if plain == LOGITS:
        figures["argmax"] = agreement(expected, got, real, allowed)
        if figures["argmax"] < bounds.tolerance.argmax:
            failures.append(
                f"{subject} has its largest value where the eager model has it at "
                f"{figures['argmax']:.1%} of the positions "
                f"(allowed {bounds.tolerance.argmax:.1%})"
            )
    return Check(name, next(iter(failures), None), figures)


def _same_kind(got: np.dtype[Any], expected: np.dtype[Any]) -> bool:
    """Equal dtypes; of floats, whose width a probe doesn't keep, any two."""
    return got == expected or (got.kind == "f" and expected.kind == "f")


def too_far(subject: str, difference: Difference, bounds: Bounds) -> Iterator[str]:
    """What a difference breaks of the bounds, if anything."""
    allowed = bounds.allowed(difference.scale)
    if not difference.max_abs <= allowed:
        yield differing(subject, difference, allowed)
    if not difference.cosine >= bounds.tolerance.cosine:
        yield (
            f"{subject} has a cosine of {difference.cosine:.9g} to the eager model's "
            f"(allowed {bounds.tolerance.cosine:.9g})"
        )


def differing(subject: str, difference: Difference, allowed: float) -> str:
    """`logits` [2, 8, 256] differs by 0.12 at [1, 0, 17] (expected 1.204, got 1.324; ...)."""
    where = f" at {list(difference.index)}" if difference.index else ""
    return (
        f"{subject} differs by {difference.max_abs:.3g}{where} "
        f"(expected {difference.expected:.6g}, got {difference.got:.6g}; allowed {allowed:.3g})"
    )
