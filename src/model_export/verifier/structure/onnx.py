"""Reads an ONNX file: its ports, ONNX's own checker, its operators and its weights' places."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import DecodeError
from onnx import defs, external_data_helper

from model_export.manifest import ComponentRecord
from model_export.runtime.errors import first_line
from model_export.verifier.structure.found import FoundGraph, FoundTensor, UnreadableGraph

_DTYPES = {
    onnx.TensorProto.FLOAT: "float32",
    onnx.TensorProto.FLOAT16: "float16",
    onnx.TensorProto.BFLOAT16: "bfloat16",
    onnx.TensorProto.DOUBLE: "float64",
    onnx.TensorProto.BOOL: "bool",
    onnx.TensorProto.INT8: "int8",
    onnx.TensorProto.INT16: "int16",
    onnx.TensorProto.INT32: "int32",
    onnx.TensorProto.INT64: "int64",
    onnx.TensorProto.UINT8: "uint8",
}
_STANDARD = ("", "ai.onnx")
_MICROSOFT = "com.microsoft"
# ONNX Runtime 1.32.0 has them in ONNX's own domain.
_MICROSOFT_IN_STANDARD = frozenset({"SimplifiedLayerNormalization"})


def inspect(artifact: Path, record: ComponentRecord, spec: Mapping[str, Any]) -> FoundGraph:
    """The graph in `record.file`, its weights left where they are.

    Operators of ONNX Runtime's own are fine where the spec asks for them (`ort_fusions`, a
    quantizer).
    """
    path = artifact / record.file
    try:
        model = onnx.load(path, load_external_data=False)
    except DecodeError as error:
        raise UnreadableGraph(f"`{record.file}` is no ONNX file ({error})") from error
    initializers = {tensor.name for tensor in model.graph.initializer}
    microsoft = bool(spec["config"].get("ort_fusions") or spec.get("quantizer"))
    return FoundGraph(
        tuple(_port(value) for value in model.graph.input if value.name not in initializers),
        tuple(_port(value) for value in model.graph.output),
        {
            "external data": next(_wrong_places(model, artifact, record), None),
            "operators": next(_unknown_operators(model, microsoft), None),
            "onnx.checker": _refusal(model, record, microsoft),
        },
    )


def _port(value: onnx.ValueInfoProto) -> FoundTensor:
    tensor = value.type.tensor_type
    shape = tuple(
        dim.dim_value if dim.HasField("dim_value") else (dim.dim_param or None)
        for dim in tensor.shape.dim
    )
    dtype = _DTYPES.get(tensor.elem_type) or onnx.TensorProto.DataType.Name(tensor.elem_type)
    return FoundTensor(value.name, dtype, shape)


def _refusal(model: onnx.ModelProto, record: ComponentRecord, microsoft: bool) -> str | None:
    """What ONNX's checker has against the graph; `_wrong_places` looks at its weights files.

    With `microsoft`, operators of ONNX Runtime in ONNX's domain go under its own, which the checker
    leaves alone.

    The checker refuses a weights file with more than one hard link (onnx 1.21.0, "indicating a
    potential hardlink attack"), and build systems link large files into their sandboxes. So it sees
    external initializers as inputs.
    """
    checked = onnx.ModelProto()
    checked.CopyFrom(model)
    graph = checked.graph
    del graph.initializer[:]
    for item in model.graph.initializer:
        if external_data_helper.uses_external_data(item):
            port = onnx.helper.make_tensor_value_info(item.name, item.data_type, item.dims)
            graph.input.append(port)
        else:
            graph.initializer.append(item)
    for node in _nodes(graph.node) if microsoft else ():
        if node.op_type in _MICROSOFT_IN_STANDARD:
            node.domain = _MICROSOFT
    try:
        onnx.checker.check_model(checked)
    except onnx.checker.ValidationError as error:
        reason = first_line(error)
        return f"`{record.file}` is refused by ONNX's checker: {reason}"
    return None


def _wrong_places(model: onnx.ModelProto, artifact: Path, record: ComponentRecord) -> Iterator[str]:
    used = set()
    for tensor in external_data_helper._get_all_tensors(model):
        if not external_data_helper.uses_external_data(tensor):
            continue
        info = external_data_helper.ExternalDataInfo(tensor)
        used.add(info.location)
        if info.location not in record.weights:
            yield (
                f"`{record.file}` has `{tensor.name}` in `{info.location}`, which isn't among its "
                f"weights files ({', '.join(record.weights) or 'none'})"
            )
            continue
        end = (info.offset or 0) + (info.length or 0)
        size = (artifact / info.location).stat().st_size
        if end > size:
            yield (
                f"`{record.file}` has `{tensor.name}` up to byte {end} of `{info.location}`, "
                f"which has {size}"
            )
    for location in record.weights:
        if location not in used:
            yield f"`{record.file}` reads nothing of `{location}`, its weights file"


def _unknown_operators(model: onnx.ModelProto, microsoft: bool) -> Iterator[str]:
    opsets = {entry.domain: entry.version for entry in model.opset_import}
    functions = {(function.domain, function.name) for function in model.functions}
    bodies = [model.graph.node, *(function.node for function in model.functions)]
    for node in (node for body in bodies for node in _nodes(body)):
        if (node.domain, node.op_type) in functions:
            continue
        if microsoft and (node.domain == _MICROSOFT or node.op_type in _MICROSOFT_IN_STANDARD):
            continue
        if node.domain not in _STANDARD:
            yield f"operator `{node.domain}.{node.op_type}` isn't one of ONNX's own"
            continue
        version = opsets.get(node.domain, opsets.get("", opsets.get("ai.onnx", 0)))
        try:
            schema = defs.get_schema(node.op_type, version, "")
        except defs.SchemaError:
            yield f"operator `{node.op_type}` isn't in opset {version}"
            continue
        if schema.deprecated:
            yield f"operator `{node.op_type}` is deprecated in opset {version}"


def _nodes(body: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """The nodes of a body and of the bodies inside it."""
    for node in body:
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _nodes(graph.node)
