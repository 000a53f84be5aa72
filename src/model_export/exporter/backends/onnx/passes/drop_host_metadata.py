"""Drops what tells about the machine that exported, not about the model."""

from __future__ import annotations

import onnx_ir
from onnx_ir.passes import InPlacePass, PassResult
from onnx_ir.traversal import RecursiveGraphIterator

# File and line of the Python that made each node (torch 2.12.0): paths of the build machine.
_STACK_TRACE = "pkg.torch.onnx.stack_trace"


class DropHostMetadataPass(InPlacePass):
    """Removes stack traces, and the build's suffix (`+cu130`) from the producer's version.

    The suffix names the wheel that an index serves to this platform; the manifest has it.
    """

    def call(self, model: onnx_ir.Model) -> PassResult:
        modified = False
        for graph in (model.graph, *model.functions.values()):
            for node in RecursiveGraphIterator(graph):
                modified |= node.metadata_props.pop(_STACK_TRACE, None) is not None
        if model.producer_version and "+" in model.producer_version:
            model.producer_version = model.producer_version.partition("+")[0]
            modified = True
        return PassResult(model, modified)
