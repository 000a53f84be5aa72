"""What the manifest says about an ONNX graph."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir

from model_export.exporter.dynamic_shapes import recorded_bounds
from model_export.manifest import ComponentRecord, Dimension, TensorRecord
from model_export.spec import ExportSpec

_DTYPES = {
    onnx_ir.DataType.FLOAT: "float32",
    onnx_ir.DataType.FLOAT16: "float16",
    onnx_ir.DataType.BFLOAT16: "bfloat16",
    onnx_ir.DataType.DOUBLE: "float64",
    onnx_ir.DataType.BOOL: "bool",
    onnx_ir.DataType.INT8: "int8",
    onnx_ir.DataType.INT16: "int16",
    onnx_ir.DataType.INT32: "int32",
    onnx_ir.DataType.INT64: "int64",
    onnx_ir.DataType.UINT8: "uint8",
}


def component_record(
    name: str, model: onnx_ir.Model, spec: ExportSpec, file: str, weights: Sequence[str]
) -> ComponentRecord:
    """The record of a graph as it is; inputs that are initializers as well needn't be fed."""
    fed = tuple(_tensor(value) for value in model.graph.inputs if value.const_value is None)
    outputs = tuple(_tensor(value) for value in model.graph.outputs)
    return ComponentRecord(name, file, tuple(weights), fed, outputs, recorded_bounds(fed, spec))


def _tensor(value: onnx_ir.Value) -> TensorRecord:
    dtype = value.dtype
    shape: tuple[Dimension, ...] = ()
    if value.shape is not None:
        shape = tuple(dim if isinstance(dim, int) else (dim.value or "?") for dim in value.shape)
    spelled = "unknown" if dtype is None else _DTYPES.get(dtype, dtype.name.lower())
    return TensorRecord(value.name or "", spelled, shape)
