"""The values of a model whose shape is known."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir
from onnx_ir.traversal import RecursiveGraphIterator


def shaped_values(model: onnx_ir.Model) -> Iterator[onnx_ir.Value]:
    """Inputs, initializers and every node's outputs, in graphs, subgraphs and functions."""
    for graph in (*model.graphs(), *model.functions.values()):
        values = [*graph.inputs]
        if isinstance(graph, onnx_ir.Graph):
            values += graph.initializers.values()
        for value in values:
            if value.shape is not None:
                yield value
    for graph in (model.graph, *model.functions.values()):
        for node in RecursiveGraphIterator(graph):
            for value in node.outputs:
                if value.shape is not None:
                    yield value
