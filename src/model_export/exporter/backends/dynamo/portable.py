"""Takes out of a program what belongs to the machine and the run that traced it."""

from __future__ import annotations

import torch

# What torch.export.save writes of a node's history beside its meaning. `stack_trace` holds paths of
# the build machine; `from_node` the memory addresses of the graphs that a node came from.
_HISTORY = ("stack_trace", "from_node")


def remove_build_traces(program: torch.export.ExportedProgram) -> None:
    """Remove stack traces and node histories from every graph of `program`, in place.

    Seen in torch 2.12.0: without this the same export gives other bytes in another folder.
    """
    for graph_module in program.graph_module.modules():
        if isinstance(graph_module, torch.fx.GraphModule):
            for node in graph_module.graph.nodes:
                for key in _HISTORY:
                    node.meta.pop(key, None)
