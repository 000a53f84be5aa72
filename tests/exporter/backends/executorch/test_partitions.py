"""Cutting partitions out of a graph: the same order and the same answers as upstream's."""

from __future__ import annotations

import inspect
import operator
import random
from typing import Any

import pytest
import torch
from executorch.exir.backend.canonical_partitioners.group_partitioner import (
    GroupBasedPartitioner,
    _DependencyViewer,
)
from torch.fx import Graph, GraphModule
from torch.fx.passes.infra.partitioner import Partition
from torch.fx.passes.tools_common import legalize_graph

from model_export.exporter.backends.executorch.partitions import (
    partitions_cut_in_place,
    sort_in_place,
)

_TARGETS = (torch.relu, torch.sigmoid, operator.add, operator.neg)


@pytest.mark.parametrize("seed", range(20))
def test_nodes_are_sorted_as_by_a_copy(seed: int) -> None:
    """Twice, with the order disturbed in between as by the next partition."""
    ours, theirs = _random_graph(seed), _random_graph(seed)
    for again in range(2):
        assert sort_in_place(ours) is ours
        legalize_graph(theirs)
        assert _listed(ours) == _listed(theirs)
        for module in (ours, theirs):
            _disturb(module, seed + again)
    assert any(_listed(_random_graph(seed)) != _listed(theirs) for seed in range(5))


def test_sorted_nodes_can_be_found_and_compiled() -> None:
    module = _random_graph(3)
    before = module(torch.tensor(2.0))
    sort_in_place(module)
    module.graph.lint()
    module.recompile()
    assert torch.equal(module(torch.tensor(2.0)), before)
    found = module.graph.find_nodes(op="call_function", target=torch.relu)
    assert [n.name for n in found] == [n.name for n in module.graph.nodes if n.target is torch.relu]


def test_a_cycle_is_an_error() -> None:
    module = _random_graph(1)
    first, second = [node for node in module.graph.nodes if node.target is operator.add][:2]
    first.args, second.args = (second, second), (first, first)
    with pytest.raises(RuntimeError, match="cycle"):
        sort_in_place(module)
    with pytest.raises(RuntimeError, match="cycle"):
        legalize_graph(module)


def test_partitions_may_be_one_when_upstream_says_so() -> None:
    upstream = GroupBasedPartitioner._can_merge_partitions
    answers = []
    for seed in range(60):
        generator = random.Random(seed)
        module = _random_graph(seed)
        nodes = [node for node in module.graph.nodes if node.op == "call_function"]
        chosen = generator.sample(nodes, 4)
        partitions = {
            0: Partition(id=0, nodes=chosen[:2]),
            1: Partition(id=1, nodes=chosen[2:]),
        }
        partitioner: Any = GroupBasedPartitioner.__new__(GroupBasedPartitioner)
        partitioner.dependency_viewer = _DependencyViewer(module)
        with partitions_cut_in_place():
            ours = partitioner._can_merge_partitions(0, 1, partitions)
        assert ours == upstream(partitioner, 0, 1, partitions)
        answers.append(ours)
    assert set(answers) == {True, False}


def test_upstream_looks_each_node_up() -> None:
    """Once it doesn't, `_can_merge` of partitions.py isn't needed."""
    source = inspect.getsource(GroupBasedPartitioner._can_merge_partitions)
    assert "any(n in combined_nodes for n in downstream_nodes)" in source


def _random_graph(seed: int) -> GraphModule:
    generator = random.Random(seed)
    graph = Graph()
    nodes = [graph.placeholder("x")]
    for _ in range(30):
        target = generator.choice(_TARGETS)
        count = 2 if target is operator.add else 1
        nodes.append(graph.call_function(target, tuple(generator.choices(nodes[-6:], k=count))))
    graph.output(nodes[-1])
    return GraphModule(torch.nn.Module(), graph)


def _disturb(module: GraphModule, seed: int) -> None:
    """Put a node where another was, with its users, as a call of a partition is."""
    generator = random.Random(seed)
    nodes = [node for node in module.graph.nodes if node.op == "call_function"]
    place = generator.randrange(len(nodes))
    with module.graph.inserting_after(nodes[-1]):
        new = module.graph.call_function(torch.tanh, nodes[place].args[:1])
    nodes[place].replace_all_uses_with(new)
    module.graph.erase_node(nodes[place])


def _listed(module: GraphModule) -> list[tuple[str, str, list[str]]]:
    return [
        (node.name, str(node.args), [user.name for user in node.users])
        for node in module.graph.nodes
    ]
