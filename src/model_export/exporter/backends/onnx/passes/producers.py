"""Which operator of ONNX makes a value."""

from __future__ import annotations

import onnx_ir


def producer(value: onnx_ir.Value | None, operator: str) -> onnx_ir.Node | None:
    """The node that makes `value`, if it is this operator."""
    node = value.producer() if value is not None else None
    return node if node is not None and is_operator(node, operator) else None


def is_operator(node: onnx_ir.Node, operator: str) -> bool:
    """Whether a node is this operator of ONNX itself, and not another domain's of that name."""
    return node.op_type == operator and node.domain == ""
