"""Reads an OpenVINO IR: its ports, its states, and where its constants lie."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import openvino

from model_export.manifest import ComponentRecord
from model_export.runtime.errors import last_line
from model_export.runtime.graph import plain_name
from model_export.runtime.graphs.openvino import BEAM_INDEX, state_records
from model_export.verifier.structure.found import FoundGraph, FoundTensor, UnreadableGraph

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
_PLACE = re.compile(r'\boffset="(\d+)" size="(\d+)"')


def inspect(artifact: Path, record: ComponentRecord, spec: Mapping[str, Any]) -> FoundGraph:
    """The graph in `record.file`, not compiled."""
    misplaced = _misplaced(artifact, record)
    if misplaced is not None:
        # OpenVINO would map the file and read beyond its end.
        raise UnreadableGraph(misplaced)
    weights = artifact / record.weights[0]
    try:
        model = openvino.Core().read_model(artifact / record.file, weights)
    except RuntimeError as error:
        reason = last_line(error)
        raise UnreadableGraph(f"`{record.file}` is refused by OpenVINO: {reason}") from error
    recorded = {tensor.name for tensor in (*record.inputs, *record.outputs)}
    return FoundGraph(
        tuple(_port(port, recorded) for port in model.inputs),
        tuple(_port(port, recorded) for port in model.outputs),
        {"constants": None},
        {plain_name(kept.name): kept.dtype for kept, _ in state_records(model).values()},
        frozenset({BEAM_INDEX}),
    )


def _port(port: openvino.Output, recorded: set[str]) -> FoundTensor:
    """A port under the one of its names that the record has, if any."""
    names = sorted(port.get_names())
    name = next((name for name in names if name in recorded), names[0] if names else "")
    shape = tuple(None if dim.is_dynamic else dim.get_length() for dim in port.get_partial_shape())
    dtype = port.get_element_type().get_type_name()
    return FoundTensor(name, _DTYPES.get(dtype, dtype), shape)


def _misplaced(artifact: Path, record: ComponentRecord) -> str | None:
    if len(record.weights) != 1:
        return f"`{record.file}` needs one weights file, and its record has {len(record.weights)}"
    (weights,) = record.weights
    size = (artifact / weights).stat().st_size
    text = (artifact / record.file).read_text(encoding="utf-8", errors="replace")
    end = max((int(start) + int(length) for start, length in _PLACE.findall(text)), default=0)
    if end > size:
        return f"`{record.file}` has a constant up to byte {end} of `{weights}`, which has {size}"
    return None
