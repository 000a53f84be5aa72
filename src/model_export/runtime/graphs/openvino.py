"""A component in OpenVINO, on the CPU."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import openvino

from model_export.manifest import ComponentRecord, TensorRecord
from model_export.runtime.errors import ArtifactError, InputError, RuntimeModelError, last_line
from model_export.runtime.graph import Array
from model_export.runtime.graphs.bfloat16 import from_bits, to_bits
from model_export.runtime.graphs.inputs import check_inputs

BEAM_INDEX = "beam_idx"

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


class OpenVINOGraph:
    """Satisfies `model_export.runtime.graph.Graph`.

    A cache that the IR keeps as state is set from the inputs of each call (empty where they don't
    have it) and handed out afterwards: calls don't depend on each other.
    """

    def __init__(
        self, record: ComponentRecord, model: openvino.Model, compiled: openvino.CompiledModel
    ) -> None:
        self.record = record
        self._request = compiled.create_infer_request()
        self._states = state_records(model)

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """One call; arrays that the caller may keep. Raises InputError for what doesn't fit."""
        states = {before.name: before for before, _ in self._states.values()}
        check_inputs(self.record, inputs, tuple(states.values()), (BEAM_INDEX,))
        given = [name for name in states if name in inputs]
        if given and len(given) < len(states):
            missing = ", ".join(name for name in states if name not in inputs)
            raise InputError(f"`{self.record.name}` needs its whole cache or none: add {missing}.")
        for tensor in self.record.inputs:
            if tensor.name in inputs:
                put(self._request.get_tensor(tensor.name), tensor, inputs[tensor.name])
            elif tensor.name == BEAM_INDEX:
                batch = next(iter(inputs.values())).shape[0]
                beams = np.arange(batch, dtype=np.int32)
                put(self._request.get_tensor(tensor.name), tensor, beams)
        self._request.reset_state()
        for state in self._request.query_state() if given else ():
            before, _ = self._states[state.name]
            state.state = to_tensor(inputs[before.name], before.dtype)
        infer(self.record, self._request)
        outputs = {
            tensor.name: to_array(self._request.get_tensor(tensor.name))
            for tensor in self.record.outputs
        }
        for state in self._request.query_state():
            _, after = self._states[state.name]
            outputs[after.name] = to_array(state.state)
        return outputs


def open_graph(folder: Path, record: ComponentRecord, device: str = "cpu") -> OpenVINOGraph:
    """Load the component. Raises ArtifactError if OpenVINO can't."""
    model, compiled = open_model(folder, record)
    return OpenVINOGraph(record, model, compiled)


def open_model(
    folder: Path, record: ComponentRecord
) -> tuple[openvino.Model, openvino.CompiledModel]:
    """The component as read and as compiled. Raises ArtifactError if OpenVINO can't."""
    core = openvino.Core()
    try:
        model = core.read_model(folder / record.file, folder / record.weights[0])
        compiled = core.compile_model(
            model, "CPU", {"INFERENCE_PRECISION_HINT": _precision(record)}
        )
    except RuntimeError as error:
        reason = last_line(error)
        raise ArtifactError(
            f"OpenVINO {openvino.__version__} can't load {record.file}: {reason}. Export it again."
        ) from error
    for side, named, ports in (
        ("inputs", record.inputs, model.inputs),
        ("outputs", record.outputs, model.outputs),
    ):
        wanted, found = {t.name for t in named}, {name for p in ports for name in p.get_names()}
        if not wanted <= found or len(named) != len(ports):
            raise ArtifactError(
                f"The {side} of {record.file} aren't those of the manifest: export it again."
            )
    return model, compiled


def state_records(model: openvino.Model) -> dict[str, tuple[TensorRecord, TensorRecord]]:
    """Each state by its id, as the input and the output that it was made of.

    OpenVINO names a state by joining both: `input.cache.layers.0.keysoutput.cache.layers.0.keys`,
    or the plain name twice where the two were the same.
    """
    found = {}
    for variable in model.get_variables():
        info = variable.get_info()
        before, mark, after = info.variable_id.rpartition("output.")
        if not mark:
            half = len(info.variable_id) // 2
            before, after = info.variable_id[:half], info.variable_id[half:]
        element = info.data_type.get_type_name()
        dtype = _DTYPES.get(element, element)
        shape = tuple("?" if dim.is_dynamic else dim.get_length() for dim in info.data_shape)
        found[info.variable_id] = (
            TensorRecord(before, dtype, shape),
            TensorRecord(mark + after, dtype, shape),
        )
    return found


def put(own: openvino.Tensor, tensor: TensorRecord, array: Array) -> None:
    """Copy `array` into `own`, the request's own tensor of that input.

    OpenVINO 2026.3.1 hands out an output that is an input (`encoder_last_hidden_state` of Whisper's
    prefill) in the memory of whatever tensor was set for it, and keeps that memory after the tensor
    is gone: the heap is corrupted a call later. A request's own tensors stay.
    """
    if tuple(own.get_shape()) != array.shape:
        own.set_shape(openvino.Shape(array.shape))
    if tensor.dtype == "bfloat16":
        own.data.view(np.uint16)[...] = to_bits(array)
    else:
        own.data[...] = array


def infer(record: ComponentRecord, request: openvino.InferRequest) -> None:
    """One call. Raises RuntimeModelError with OpenVINO's reason if it fails."""
    try:
        # Else every output is copied into the result: all logits, and a cache that comes out.
        request.infer(share_outputs=True)
    except RuntimeError as error:
        reason = last_line(error)
        shapes = ", ".join(
            f"{tensor.name} {list(request.get_tensor(tensor.name).get_shape())}"
            for tensor in record.inputs
        )
        raise RuntimeModelError(
            f"`{record.name}` failed in OpenVINO for {shapes}: {reason}."
        ) from error


def to_tensor(array: Array, dtype: str) -> openvino.Tensor:
    """`array` as a tensor of the record's dtype, its values copied."""
    if dtype != "bfloat16":
        return openvino.Tensor(np.array(array, order="C"))
    tensor = openvino.Tensor(openvino.Type.bf16, openvino.Shape(array.shape))
    tensor.data.view(np.uint16)[...] = to_bits(array)
    return tensor


def to_array(tensor: openvino.Tensor) -> Array:
    """A copy of what `tensor` holds; float32 for bfloat16."""
    if tensor.get_element_type() == openvino.Type.bf16:
        # `data` has the right bits and calls them float16 (OpenVINO 2026.3.1).
        return from_bits(tensor.data.view(np.uint16))
    return np.array(tensor.data)


def _precision(record: ComponentRecord) -> Any:
    """What to compute in: the plugin prefers bfloat16 for anything on a CPU that has AMX."""
    dtypes = {tensor.dtype for tensor in (*record.inputs, *record.outputs)}
    if "bfloat16" in dtypes:
        return "bf16"
    return "f16" if "float16" in dtypes else "f32"
