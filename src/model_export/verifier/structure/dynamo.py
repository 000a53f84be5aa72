"""Reads the signature of a `.pt2` from its archive: nothing is unpickled, no weight is loaded."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torch._export.serde.schema import ScalarType

from model_export.manifest import ComponentRecord, TensorRecord
from model_export.runtime.graph import plain_name
from model_export.verifier.structure.found import FoundGraph, FoundTensor, UnreadableGraph

_DTYPES = {
    "BYTE": "uint8",
    "CHAR": "int8",
    "SHORT": "int16",
    "INT": "int32",
    "LONG": "int64",
    "HALF": "float16",
    "FLOAT": "float32",
    "DOUBLE": "float64",
    "BOOL": "bool",
    "BFLOAT16": "bfloat16",
}


def inspect(artifact: Path, record: ComponentRecord, spec: Mapping[str, Any]) -> FoundGraph:
    """The graph in `record.file`, by the JSON that torch.export wrote (schema of torch 2.12.0).

    The archive names the arguments of the call, not the tensors inside a cache: those are taken
    from the record where they are in the right argument.
    """
    try:
        graph = _graph_module(artifact / record.file)
        signature, values = graph["signature"], graph["graph"]["tensor_values"]
        arguments = list(_arguments(graph))
        # An argument of None is a leaf of the call as well, and a constant of the graph.
        inputs = [
            spec["user_input"]["arg"] if "user_input" in spec else {}
            for spec in signature["input_specs"]
            if "user_input" in spec or "constant_input" in spec
        ]
        outputs = [
            spec["user_output"]["arg"]
            for spec in signature["output_specs"]
            if "user_output" in spec
        ]
        tensors = [
            (name, values[arg["as_tensor"]["name"]])
            for name, arg in zip(arguments, inputs, strict=True)
            if "as_tensor" in arg
        ]
        results = [values[arg["as_tensor"]["name"]] for arg in outputs if "as_tensor" in arg]
    except (KeyError, ValueError, zipfile.BadZipFile) as error:
        raise UnreadableGraph(f"`{record.file}` is no archive of torch.export ({error})") from error
    return FoundGraph(
        tuple(
            _tensor(_named(argument, place, record.inputs), value)
            for place, (argument, value) in enumerate(tensors)
        ),
        tuple(
            _tensor(
                record.outputs[place].name if place < len(record.outputs) else f"#{place}", value
            )
            for place, value in enumerate(results)
        ),
        {},
    )


def _graph_module(path: Path) -> dict[str, Any]:
    with zipfile.ZipFile(path) as archive:
        (member,) = (
            name for name in archive.namelist() if "/models/" in name and name.endswith(".json")
        )
        module: dict[str, Any] = json.loads(archive.read(member))["graph_module"]
        return module


def _arguments(graph: Mapping[str, Any]) -> Iterator[str]:
    """For every leaf of the call's inputs, the keyword argument that it is part of."""
    (root,) = (call for call in graph["module_call_graph"] if call["fqn"] == "")
    _, tree = json.loads(root["signature"]["in_spec"])
    positional, keywords = tree["children_spec"]
    for _ in range(_leaves(positional)):
        yield "#"
    names = json.loads(keywords["context"])
    for name, child in zip(names, keywords["children_spec"], strict=True):
        for _ in range(_leaves(child)):
            yield str(name)


def _leaves(spec: Mapping[str, Any]) -> int:
    if spec["type"] is None:
        return 1
    return sum(map(_leaves, spec["children_spec"]))


def _named(argument: str, place: int, recorded: tuple[TensorRecord, ...]) -> str:
    if place < len(recorded):
        plain = plain_name(recorded[place].name)
        if plain == argument or plain.startswith(f"{argument}."):
            return recorded[place].name
    return argument


def _tensor(name: str, value: Mapping[str, Any]) -> FoundTensor:
    dtype = ScalarType(value["dtype"]).name
    shape = tuple(size.get("as_int") for size in value["sizes"])
    return FoundTensor(name, _DTYPES.get(dtype, dtype.lower()), shape)
