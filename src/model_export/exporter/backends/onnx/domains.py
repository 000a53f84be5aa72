"""Imports the domains of operators that a quantizer brought in."""

from __future__ import annotations

import onnx_ir

_MICROSOFT = "com.microsoft"


def import_quantized_domains(model: onnx_ir.Model) -> None:
    """Import ONNX Runtime's domain if `model` uses it.

    nncf 3.4.0 makes `MatMulNBits` of weights with four bits and imports nothing for it, so that
    ONNX's checker refuses the graph: "No opset import for domain 'com.microsoft'".
    """
    if any(node.domain == _MICROSOFT for graph in model.graphs() for node in graph):
        model.opset_imports.setdefault(_MICROSOFT, 1)
