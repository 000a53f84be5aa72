"""Static dimensions as numbers."""

from __future__ import annotations

import onnx_ir
from onnx_ir.passes import InPlacePass, PassResult

from model_export.exporter.backends.onnx.passes.shapes import shaped_values


class StaticDimensionsPass(InPlacePass):
    """Turns a dimension called "16" into the value 16.

    torch 2.12.0 writes a static dimension of a cache input as `dim_param: "16"`, since it was a
    symbol before the trace settled it. Runtimes take that for a dynamic dimension.
    """

    def call(self, model: onnx_ir.Model) -> PassResult:
        modified = False
        for value in shaped_values(model):
            dims = [
                int(dim.value)
                if isinstance(dim, onnx_ir.SymbolicDim) and dim.value and dim.value.isdecimal()
                else dim
                for dim in value.shape
            ]
            if dims != list(value.shape):
                value.shape = onnx_ir.Shape(dims)
                modified = True
        return PassResult(model, modified)
