"""Sizes that a model's own code fixes stay fixed in the trace that follows a quantizer.

Upstream symptom: for ExecuTorch the engine (transformers 5.24.0, executorch 1.3.1) traces a
quantized graph again without what its first trace found, and the height and width of a ViT's images
come out dynamic. Memory is then planned for sizes that can't be (a gigabyte), and less of it than
the runtime asks for: `Failed to load method forward, error: 0x:21`. The guards that torch 2.12.0's
`ExportedProgram.module()` can bring along say nothing of sizes that are fixed.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from transformers.exporters.configs import ExportFormat
from transformers.exporters.quantizers import ExportQuantizer


class FixedSizesKept(ExportQuantizer):
    """In front of one of the engine's quantizers of traced graphs: checks sizes in the result."""

    def quantize(
        self, model: torch.fx.GraphModule, sample_inputs: dict[str, Any], export_format: Any
    ) -> torch.fx.GraphModule:
        fixed = _fixed_sizes(model)
        quantized: torch.fx.GraphModule = super().quantize(model, sample_inputs, export_format)
        if export_format is ExportFormat.EXECUTORCH:
            _check(quantized, fixed)
        return quantized


def _fixed_sizes(model: torch.fx.GraphModule) -> dict[str, dict[int, int]]:
    """The sizes that a trace has fixed, which may still be SymInts: input -> axis -> size."""
    return {
        node.name: {
            axis: int(size)
            for axis, size in enumerate(node.meta["val"].shape)
            if isinstance(size, int) or size.node.expr.is_Integer
        }
        for node in model.graph.find_nodes(op="placeholder")
        if isinstance(node.meta.get("val"), torch.Tensor)
    }


def _check(model: torch.fx.GraphModule, fixed: dict[str, dict[int, int]]) -> None:
    """Let the graph check these sizes of its inputs, which fixes them when it is traced."""
    placeholders = model.graph.find_nodes(op="placeholder")
    with model.graph.inserting_after(placeholders[-1]):
        for node in placeholders:
            for axis, size in reversed(fixed.get(node.name, {}).items()):
                check = model.graph.call_function(torch._check, (node,))
                with model.graph.inserting_before(check):
                    found = model.graph.call_function(torch.ops.aten.sym_size.int, (node, axis))
                    same = model.graph.call_function(operator.eq, (found, size))
                check.args = (same,)
    model.recompile()
