"""PT2E without the weights that it has replaced (torchao 0.18.0)."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from transformers.exporters.quantizers import PT2EQuantizer


class OnceStoredQuantizer(PT2EQuantizer):
    """Drops the float32 weights whose folded int8 the graph uses.

    `convert_pt2e` leaves them on the module, and torch.export (2.12.0) then takes every tensor of a
    module into the program: a `.pt2` came out larger than the float32 one.
    """

    def quantize(
        self, model: torch.fx.GraphModule, sample_inputs: dict[str, Any], export_format: Any
    ) -> torch.fx.GraphModule:
        quantized: torch.fx.GraphModule = super().quantize(model, sample_inputs, export_format)
        drop_unused_tensors(quantized)
        return quantized


def drop_unused_tensors(module: torch.fx.GraphModule) -> None:
    """Delete parameters and buffers that no node of the graph reads."""
    used = {str(node.target) for node in module.graph.nodes if node.op == "get_attr"}
    tensors = itertools.chain(
        module.named_parameters(remove_duplicate=False),
        module.named_buffers(remove_duplicate=False),
    )
    for name in [name for name, _ in tensors]:
        if name in used or any(name.startswith(f"{other}.") for other in used):
            continue
        parent, _, attribute = name.rpartition(".")
        delattr(module.get_submodule(parent), attribute)
