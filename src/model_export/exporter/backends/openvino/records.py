"""What the manifest says about an OpenVINO graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import openvino

from model_export.exporter.dynamic_shapes import recorded_bounds
from model_export.manifest import ComponentRecord, Dimension, TensorRecord
from model_export.spec import ExportSpec

_DTYPES = {
    "boolean": "bool",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "u8": "uint8",
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "f64": "float64",
}


def component_record(
    name: str,
    model: openvino.Model,
    dimension_names: Mapping[str, Mapping[int, str]],
    spec: ExportSpec,
    file: str,
    weights: Sequence[str],
) -> ComponentRecord:
    """The record of a model's ports in their order.

    OpenVINO keeps no names of dimensions. An axis of an input that the target names has that name,
    any other dynamic axis is "?".
    """
    inputs = tuple(_tensor(port, dimension_names) for port in model.inputs)
    outputs = tuple(_tensor(port, {}) for port in model.outputs)
    return ComponentRecord(
        name, file, tuple(weights), inputs, outputs, recorded_bounds(inputs, spec)
    )


def _tensor(
    port: openvino.Output, dimension_names: Mapping[str, Mapping[int, str]]
) -> TensorRecord:
    name = port.get_any_name()
    axes = dimension_names.get(name.removeprefix("input."), {})
    shape: tuple[Dimension, ...] = tuple(
        axes.get(axis, "?") if dim.is_dynamic else dim.get_length()
        for axis, dim in enumerate(port.get_partial_shape())
    )
    dtype = port.get_element_type().get_type_name()
    return TensorRecord(name, _DTYPES.get(dtype, dtype), shape)
