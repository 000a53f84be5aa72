"""XNNPACK's passes without a trace of what they have left as it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from executorch.backends.xnnpack import _passes
from executorch.exir.pass_base import ExportPass, _ExportPassBase
from executorch.exir.program._program import _update_exported_program_graph_module
from torch.export import ExportedProgram
from torch.fx.passes.infra.pass_base import PassResult

# A pass that overrides one of these works while the graph is traced again.
_HOOKS = ("call_operator", "call_getitem", "call_submodule", "placeholder", "output")


@contextmanager
def unchanged_graphs_kept() -> Iterator[None]:
    """While the block lowers: a graph that a pass hasn't changed isn't traced again.

    executorch 1.3.1 cuts a decoder into 13 partitions a layer and sends each through sixteen
    passes, which take 95 % of the time of a lowering. Every pass traces the whole partition again,
    in fake tensors, though nearly none finds anything in it.
    """
    transform, call = _passes._transform, _ExportPassBase.call
    traced: list[Any] = [None]

    def transform_if_needed(program: ExportedProgram, step: ExportPass) -> ExportedProgram:
        before = _fingerprint(program.graph_module)
        if traced[0] != before or _works_while_tracing(step):
            result: ExportedProgram = transform(program, step)
            traced[0] = _fingerprint(result.graph_module)
            return result
        outcome = step(program.graph_module)
        assert outcome is not None
        after = _fingerprint(outcome.graph_module)
        if after == before:
            return program
        traced[0] = after
        return _update_exported_program_graph_module(program, outcome.graph_module)

    def call_if_needed(self: _ExportPassBase, graph: torch.fx.GraphModule) -> PassResult:
        if not _works_while_tracing(self) and traced[0] == _fingerprint(graph):
            return PassResult(graph, False)
        return call(self, graph)

    _passes._transform, _ExportPassBase.call = transform_if_needed, call_if_needed
    try:
        yield
    finally:
        _passes._transform, _ExportPassBase.call = transform, call


def _works_while_tracing(step: Any) -> bool:
    return any(getattr(type(step), name) is not getattr(ExportPass, name) for name in _HOOKS)


def _fingerprint(graph: torch.fx.GraphModule) -> tuple[Any, ...]:
    """Of the nodes: their names, what each calls and with what."""
    return tuple(
        (node.op, node.name, node.target, str(node.args), str(node.kwargs))
        for node in graph.graph.nodes
    )
