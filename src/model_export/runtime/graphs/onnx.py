"""A component in ONNX Runtime."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as failures

from model_export.manifest import ComponentRecord
from model_export.runtime.errors import ArtifactError, first_line
from model_export.runtime.graph import Array
from model_export.runtime.graphs.bfloat16 import from_bits, to_bits
from model_export.runtime.graphs.inputs import check_inputs

# onnx.TensorProto.BFLOAT16: the onnx package isn't needed for a number.
BFLOAT16 = 16

_PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
_LOAD_FAILURES = (
    failures.Fail,
    failures.InvalidGraph,
    failures.InvalidProtobuf,
    failures.NoSuchFile,
    failures.NotImplemented,
    failures.RuntimeException,
)


class OnnxGraph:
    """Satisfies `model_export.runtime.graph.Graph`."""

    def __init__(self, record: ComponentRecord, session: onnxruntime.InferenceSession) -> None:
        self.record = record
        self._session = session
        self._outputs = [tensor.name for tensor in record.outputs]

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """One call; arrays that the caller may keep. Raises InputError for what doesn't fit."""
        check_inputs(self.record, inputs)
        feeds = {
            tensor.name: ort_value(np.asarray(inputs[tensor.name], order="C"), tensor.dtype)
            for tensor in self.record.inputs
        }
        results = self._session.run_with_ort_values(self._outputs, feeds)
        return {
            tensor.name: as_numpy(value, tensor.dtype)
            for tensor, value in zip(self.record.outputs, results, strict=True)
        }


def open_graph(folder: Path, record: ComponentRecord, device: str = "cpu") -> OnnxGraph:
    """Load the component. Raises ArtifactError if ONNX Runtime can't."""
    return OnnxGraph(record, open_session(folder, record, device))


def open_session(
    folder: Path, record: ComponentRecord, device: str = "cpu"
) -> onnxruntime.InferenceSession:
    """A session on `device` ("cpu" or "cuda"). Raises ArtifactError if ONNX Runtime can't."""
    provider = _PROVIDERS[device]
    if provider not in onnxruntime.get_available_providers():
        raise ArtifactError(
            f"This ONNX Runtime has no {provider}: install onnxruntime-gpu, or use device 'cpu'."
        )
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(
            folder / record.file,
            options,
            # What a GPU has no kernel for runs on the CPU.
            providers=list(dict.fromkeys([provider, _PROVIDERS["cpu"]])),
        )
    except _LOAD_FAILURES as error:
        reason = first_line(error)
        raise ArtifactError(
            f"ONNX Runtime {onnxruntime.__version__} can't load {record.file}: {reason}. "
            "Export it again."
        ) from error
    _check_ports(record, session)
    return session


def ort_value(array: Array, dtype: str) -> onnxruntime.OrtValue:
    """`array` as a tensor of the record's dtype on the CPU, sharing its memory where it can."""
    if dtype == "bfloat16":
        return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(to_bits(array), BFLOAT16)
    return onnxruntime.OrtValue.ortvalue_from_numpy(array)


def as_numpy(value: onnxruntime.OrtValue, dtype: str) -> Array:
    """A tensor of the record's dtype as an array of its own."""
    if dtype == "bfloat16":
        # ONNX Runtime 1.32.0 refuses `numpy()`: "No corresponding Numpy type for Tensor Type".
        memory = (ctypes.c_uint8 * value.tensor_size_in_bytes()).from_address(value.data_ptr())
        return from_bits(np.frombuffer(memory, dtype=np.uint16).reshape(value.shape()))
    return np.asarray(value.numpy())


def _check_ports(record: ComponentRecord, session: onnxruntime.InferenceSession) -> None:
    for side, named, ports in (
        ("inputs", record.inputs, session.get_inputs()),
        ("outputs", record.outputs, session.get_outputs()),
    ):
        wanted, found = {tensor.name for tensor in named}, {port.name for port in ports}
        if wanted != found:
            raise ArtifactError(
                f"The {side} of {record.file} aren't those of the manifest "
                f"({', '.join(sorted(wanted ^ found))}): export it again."
            )
