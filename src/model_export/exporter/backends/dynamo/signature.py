"""Names, dtypes and shapes of what an ExportedProgram takes and gives, in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch.utils import _pytree as pytree
from transformers.exporters.utils import disambiguate_io_names, get_leaf_tensors

from model_export.exporter.dynamic_shapes import traced_size
from model_export.manifest import Dimension, TensorRecord


@dataclass(frozen=True)
class Signature:
    """The tensors of a graph in the order of a positional call, and the sizes each name allows.

    `bounds` has the smallest and largest size of each dynamic dimension with an upper bound. Where
    the target gives no smallest size it is 0: that the tracer says 2 or 4 only means that it didn't
    look at smaller ones (torch's 0/1 specialization), and nothing checks it at run time.
    """

    inputs: tuple[TensorRecord, ...]
    outputs: tuple[TensorRecord, ...]
    bounds: Mapping[str, tuple[int, int]]


def describe(
    program: torch.export.ExportedProgram,
    inputs: Mapping[str, Any],
    given_names: Mapping[str, Mapping[int, str]],
    dims: Mapping[str, tuple[int, int]],
) -> Signature:
    """The signature of `program`, which was traced with the kwargs `inputs`.

    `given_names` are the target's own (input tensor -> axis -> name of the dimension), and `dims`
    the bounds of those names.

    Tensors are named by their path (`input_ids`, `cache.layers.0.keys`), with `input.` and
    `output.` in front where both sides have the path: the engine's own naming for ONNX. A dynamic
    dimension has its given name, otherwise `<input>.<axis>` after the first input that shows it; a
    size computed from others is written as the sum or product it is.
    """
    input_tensors = _input_tensors(program)
    output_tensors = _output_tensors(program)
    input_names, output_names = disambiguate_io_names(
        _leaf_names(pytree.tree_flatten(((), dict(inputs)))[0], inputs),
        _output_names(program),
    )
    _check_same_length("inputs", input_names, input_tensors)
    _check_same_length("outputs", output_names, output_tensors)
    symbols: dict[sympy.Symbol, str] = {}
    for name, tensor in zip(input_names, input_tensors, strict=True):
        given = given_names.get(name.removeprefix("input."), {})
        for axis, size in enumerate(tensor.shape):
            symbol = traced_size(size)
            if isinstance(symbol, sympy.Symbol):
                symbols.setdefault(symbol, given.get(axis, f"{name}.{axis}"))
    return Signature(
        _records(input_names, input_tensors, symbols),
        _records(output_names, output_tensors, symbols),
        _bounds(program, symbols, dims),
    )


def _input_tensors(program: torch.export.ExportedProgram) -> list[torch.Tensor]:
    placeholders = {
        node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"
    }
    values = [placeholders.get(name) for name in program.graph_signature.user_inputs]
    return [value for value in values if isinstance(value, torch.Tensor)]


def _output_tensors(program: torch.export.ExportedProgram) -> list[torch.Tensor]:
    nodes = {node.name: node.meta.get("val") for node in program.graph.nodes}
    values = [nodes.get(name) for name in program.graph_signature.user_outputs]
    return [value for value in values if isinstance(value, torch.Tensor)]


def _leaf_names(leaves: Sequence[Any], tree: Any) -> list[str]:
    """The paths of the tensors among `leaves` inside `tree`, in the order of `leaves`."""
    paths = {id(tensor): path for path, tensor in get_leaf_tensors(tree).items()}
    return [paths[id(leaf)] for leaf in leaves if isinstance(leaf, torch.Tensor)]


def _output_names(program: torch.export.ExportedProgram) -> list[str]:
    spec = program.call_spec.out_spec
    tensors = {
        arg.arg.name
        for arg in program.graph_signature.output_specs
        if isinstance(arg.arg, torch.export.graph_signature.TensorArgument)
    }
    leaves = [
        torch.empty(0) if name in tensors else None for name in program.graph_signature.user_outputs
    ]
    return _leaf_names(leaves, pytree.tree_unflatten(leaves, spec))


def _check_same_length(what: str, names: Sequence[str], tensors: Sequence[torch.Tensor]) -> None:
    if len(names) != len(tensors):
        raise RuntimeError(
            f"The graph has {len(tensors)} {what}, but the traced call has {len(names)}: {names}"
        )


def _records(
    names: Sequence[str], tensors: Sequence[torch.Tensor], symbols: Mapping[sympy.Symbol, str]
) -> tuple[TensorRecord, ...]:
    return tuple(
        TensorRecord(
            name,
            str(tensor.dtype).removeprefix("torch."),
            tuple(_dimension(size, symbols) for size in tensor.shape),
        )
        for name, tensor in zip(names, tensors, strict=True)
    )


def _dimension(size: int | torch.SymInt, symbols: Mapping[sympy.Symbol, str]) -> Dimension:
    expression = traced_size(size)
    if isinstance(expression, int):
        return expression
    if not expression.free_symbols <= symbols.keys():  # Depends on the data.
        return "?"
    names = {symbol: sympy.Symbol(name) for symbol, name in symbols.items()}
    return str(expression.xreplace(names))


def _bounds(
    program: torch.export.ExportedProgram,
    symbols: Mapping[sympy.Symbol, str],
    dims: Mapping[str, tuple[int, int]],
) -> dict[str, tuple[int, int]]:
    bounds = {}
    for symbol, name in symbols.items():
        limits = program.range_constraints.get(symbol)
        if limits is not None and limits.upper.is_Integer:
            smallest, _ = dims.get(name, (0, 0))
            bounds[name] = (smallest, int(limits.upper))
    return bounds
