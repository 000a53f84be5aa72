"""Attention over shared keys and values, without a copy of them for each head."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir
from onnx_ir.passes import InPlacePass, PassResult
from onnx_ir.passes.common import RemoveUnusedNodesPass

from model_export.exporter.backends.onnx.passes.producers import is_operator, producer

_HEADS = 1
_SWAPPED = [0, 1, 3, 2]


class GroupedAttentionPass(InPlacePass):
    """Multiplies the heads of a group with their keys and values at once.

    transformers repeats the keys and values of a group for each of its heads (`repeat_kv`), and an
    exported graph copies the whole cache for that in every step and layer. The heads of a group
    follow each other, so that [batch, heads, length, size] is also [batch, groups, heads / groups *
    length, size]: with a reshape before the product and one after it, which copy nothing, the
    result is the same.
    """

    def call(self, model: onnx_ir.Model) -> PassResult:
        modified = False
        for graph in model.graphs():
            for node in list(graph):
                if is_operator(node, "MatMul"):
                    repeated = _find_repeated(node)
                    if repeated is not None:
                        _multiply_by_group(graph, node, repeated)
                        modified = True
        if modified:
            RemoveUnusedNodesPass()(model)
        return PassResult(model, modified)


@dataclass(frozen=True)
class _Repeated:
    """What a product's second factor is made of: `shared`, repeated for each head, then `steps`."""

    shared: onnx_ir.Value
    steps: tuple[onnx_ir.Node, ...]
    groups: int
    heads: int


def _find_repeated(product: onnx_ir.Node) -> _Repeated | None:
    left, value = product.inputs
    steps: list[onnx_ir.Node] = []
    while value is not None and (step := _step(value)) is not None:
        steps.insert(0, step)
        value = step.inputs[0]
    reshape = producer(value, "Reshape")
    expand = producer(reshape.inputs[0], "Expand") if reshape is not None else None
    unsqueeze = producer(expand.inputs[0], "Unsqueeze") if expand is not None else None
    if unsqueeze is None or _numbers(unsqueeze.inputs[1]) != [_HEADS + 1]:
        return None
    shared = unsqueeze.inputs[0]
    assert expand is not None
    apart = expand.outputs[0].shape
    groups, heads, rows = (_heads(item) for item in (shared, value, left))
    if groups is None or heads is None or rows != heads or heads % groups or apart is None:
        return None
    if shared is None or list(apart)[_HEADS : _HEADS + 2] != [groups, heads // groups]:
        return None
    return _Repeated(shared, tuple(steps), groups, heads)


def _step(value: onnx_ir.Value) -> onnx_ir.Node | None:
    """The node that makes `value`, if it treats every head alike."""
    transpose = producer(value, "Transpose")
    if transpose is not None and list(transpose.attributes.get_ints("perm", [])) == _SWAPPED:
        return transpose
    scale = producer(value, "Mul")
    if scale is not None and scale.inputs[1] is not None:
        factor = scale.inputs[1].const_value
        if factor is not None and factor.size == 1:
            return scale
    return None


def _multiply_by_group(graph: onnx_ir.Graph, product: onnx_ir.Node, repeated: _Repeated) -> None:
    left, (result,) = product.inputs[0], product.outputs
    nodes: list[onnx_ir.Node] = []

    def add(operator: str, inputs: Sequence[onnx_ir.Value | None], like: str) -> onnx_ir.Value:
        node = onnx_ir.node(operator, inputs, name=f"{like}.grouped")
        node.outputs[0].name, node.outputs[0].type = f"{like}.grouped", result.type
        nodes.append(node)
        return node.outputs[0]

    value = repeated.shared
    for step in repeated.steps:
        value = add(
            step.op_type, [value, *step.inputs[1:]], f"{result.name}.{step.outputs[0].name}"
        )
        nodes[-1].attributes.update(step.attributes)
    grouped = _shape(graph, repeated.groups)
    rows = add("Reshape", [left, grouped], f"{result.name}.rows")
    apart = add("MatMul", [rows, value], str(result.name))
    joined = add("Reshape", [apart, _shape(graph, repeated.heads)], f"{result.name}.heads")
    graph.insert_before(product, nodes)
    joined.shape = result.shape
    result.replace_all_uses_with(joined, replace_graph_outputs=True)
    name = result.name
    graph.remove(product, safe=True)
    joined.name = name


def _shape(graph: onnx_ir.Graph, heads: int) -> onnx_ir.Value:
    """A shape that keeps the first and the last axis (0) and has `heads` on the second."""
    name = f"heads.{heads}"
    if name not in graph.initializers:
        numbers = onnx_ir.tensor(np.array([0, heads, -1, 0], np.int64), name=name)
        graph.register_initializer(
            onnx_ir.Value(
                name=name,
                shape=onnx_ir.Shape([4]),
                type=onnx_ir.TensorType(onnx_ir.DataType.INT64),
                const_value=numbers,
            )
        )
    return graph.initializers[name]


def _heads(value: onnx_ir.Value | None) -> int | None:
    """The heads of [batch, heads, length, size], if they are known."""
    if value is None or value.shape is None or len(value.shape) != 4:
        return None
    heads = value.shape[_HEADS]
    return heads if isinstance(heads, int) else None


def _numbers(value: onnx_ir.Value | None) -> list[int] | None:
    if value is None or value.const_value is None:
        return None
    return [int(number) for number in value.const_value.numpy().reshape(-1)]
