"""Root mean square norms as ONNX Runtime recognises them."""

from __future__ import annotations

import onnx_ir
from onnx_ir.passes import InPlacePass, PassResult

from model_export.exporter.backends.onnx.passes.producers import is_operator, producer


class DivideByRootPass(InPlacePass):
    """Turns `x * Reciprocal(Sqrt(y))` into `x / Sqrt(y)`.

    torch 2.12.0 writes `rsqrt` with a Reciprocal. ONNX Runtime 1.32.0 fuses an RMSNorm on loading
    only with a Div (`SimplifiedLayerNormFusion`); otherwise each takes seven kernels a token.
    """

    def call(self, model: onnx_ir.Model) -> PassResult:
        modified = False
        for graph in model.graphs():
            for node in list(graph):
                if is_operator(node, "Reciprocal") and producer(node.inputs[0], "Sqrt") is not None:
                    modified |= _divide(graph, node)
        return PassResult(model, modified)


def _divide(graph: onnx_ir.Graph, reciprocal: onnx_ir.Node) -> bool:
    root, inverse = reciprocal.inputs[0], reciprocal.outputs[0]
    modified = False
    for product, position in inverse.uses():
        factor = product.inputs[1 - position] if is_operator(product, "Mul") else None
        if factor is None or factor is inverse:
            continue
        (result,) = product.outputs
        quotient = onnx_ir.node("Div", [factor, root], name=product.name)
        (divided,) = quotient.outputs
        divided.name, divided.type, divided.shape = result.name, result.type, result.shape
        graph.insert_after(product, quotient)
        result.replace_all_uses_with(divided, replace_graph_outputs=True)
        graph.remove(product, safe=True)
        modified = True
    if not inverse.uses() and not inverse.is_graph_output():
        graph.remove(reciprocal, safe=True)
    return modified
