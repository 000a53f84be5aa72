"""A graph cut into a delegate's partitions, without a copy of the graph for each of them."""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from executorch.exir import lowered_backend_module
from executorch.exir.backend import backend_api
from executorch.exir.backend.canonical_partitioners.group_partitioner import GroupBasedPartitioner
from torch.fx import Graph, GraphModule, Node
from torch.fx.passes.utils.fuser_utils import validate_partition

# What `legalize_graph` of torch 2.12.0 takes first of what is ready.
_FIRST = frozenset(
    {
        *(operator.add, operator.mul, operator.sub, operator.floordiv, operator.truediv),
        *(operator.mod, operator.le, operator.lt, operator.ge, operator.gt, operator.eq),
        operator.ne,
        torch.ops.aten.sym_constrain_range.default,
        torch.ops.aten.sym_constrain_range_for_size.default,
        torch.ops.aten._assert_async.msg,
        torch.ops.aten.scalar_tensor.default,
        torch.ops.aten._assert_scalar.default,
    }
)


@contextmanager
def partitions_cut_in_place() -> Iterator[None]:
    """While the block lowers: the nodes of a graph are moved where ExecuTorch copies them all.

    executorch 1.3.1 sorts the whole graph after each partition that it cuts out, by copying it
    (`torch.fx.passes.tools_common.legalize_graph`) and compiling the copy. With 393 partitions,
    as SmolLM2's, that is a third of a lowering. To find out which partitions can be one, it looks
    each node up that comes after another, in Python, for each pair.
    """
    sort, cut = (
        lowered_backend_module.legalize_graph,
        backend_api._create_partitions_in_graph_module,
    )
    merge = GroupBasedPartitioner._can_merge_partitions

    def cut_and_compile(graph: GraphModule, *args: Any) -> Any:
        nodes = cut(graph, *args)
        graph.recompile()
        return nodes

    lowered_backend_module.legalize_graph = sort_in_place
    backend_api._create_partitions_in_graph_module = cut_and_compile
    GroupBasedPartitioner._can_merge_partitions = _can_merge
    try:
        yield
    finally:
        lowered_backend_module.legalize_graph = sort
        backend_api._create_partitions_in_graph_module = cut
        GroupBasedPartitioner._can_merge_partitions = merge


def sort_in_place(module: GraphModule) -> GraphModule:
    """Bring a graph's nodes, and the users of each, into the order of `legalize_graph`.

    The module's code is left as it is. Raises RuntimeError if the graph has a cycle.
    """
    graph = module.graph
    order = _breadth_first(graph)
    end = graph._root
    for node in order:
        end.prepend(node)
        node.users.clear()
    # A copy has its users in the order in which they were copied, and the next sort goes by it.
    for node in order:
        for source in node.all_input_nodes:
            source.users[node] = None
    return module


def _breadth_first(graph: Graph) -> list[Node]:
    """Kahn's algorithm, as `legalize_graph` has it."""
    missing = {node: len(node.all_input_nodes) for node in graph.nodes}
    ready = deque(node for node, count in missing.items() if count == 0)
    order = []
    while ready:
        node = ready.popleft()
        order.append(node)
        for user in node.users:
            missing[user] -= 1
            if missing[user] == 0:
                if user.op == "call_function" and user.target in _FIRST:
                    ready.appendleft(user)
                else:
                    ready.append(user)
    if len(order) < len(missing):
        raise RuntimeError(f"The graph has a cycle: {[node for node in missing if missing[node]]}")
    return order


def _can_merge(self: Any, first: int, second: int, partitions: Any) -> bool:
    """Whether no path leaves the two partitions and comes back, as `_can_merge_partitions`."""
    nodes = {*partitions[first].nodes, *partitions[second].nodes}
    users = {user for node in nodes for user in node.users if user not in nodes}
    return all(
        nodes.isdisjoint(self.dependency_viewer.downstreams_of(user)) for user in users
    ) and validate_partition(list(nodes))
