"""What `check_inputs` refuses beside what every runtime's tests show."""

from __future__ import annotations

import numpy as np
import pytest

from model_export.manifest import ComponentRecord, TensorRecord
from model_export.runtime.errors import ArtifactError, InputError
from model_export.runtime.graph import check_device
from model_export.runtime.graphs.inputs import check_inputs

RECORD = ComponentRecord(
    "decode",
    "decode.pte",
    (),
    (
        TensorRecord("input_ids", "int64", ("batch", "sequence")),
        TensorRecord("positions", "int64", ("batch", 4)),
        TensorRecord("hidden", "bfloat16", ("?", 2)),
        TensorRecord("count", "int64", ()),
    ),
    (),
    {"sequence": (2, 8)},
)
GOOD = {
    "input_ids": np.ones((3, 5), np.int64),
    "positions": np.ones((3, 4), np.int64),
    "hidden": np.ones((7, 2), np.float32),
    "count": np.array(5),
}


def test_what_fits_passes() -> None:
    check_inputs(RECORD, GOOD)


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("positions", (3, 5), "with 4 at axis 1, not 5"),
        ("input_ids", (3, 9), r"with 2 to 8 at axis 1 \(sequence\), not 9"),
        ("input_ids", (3, 1), r"with 2 to 8 at axis 1 \(sequence\), not 1"),
        ("positions", (2, 4), "one size of batch, not 2 and 3"),
        ("count", (1,), r"`count` as int64 \[\], not as int64 \[1\]"),
    ],
)
def test_sizes(name: str, shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_inputs(RECORD, {**GOOD, name: np.ones(shape, np.int64)})


def test_bfloat16_is_fed_as_float32() -> None:
    with pytest.raises(InputError, match=r"`hidden` as bfloat16 .* not as float16"):
        check_inputs(RECORD, {**GOOD, "hidden": np.ones((7, 2), np.float16)})


def test_defaulted_and_optional_inputs() -> None:
    rest = {name: array for name, array in GOOD.items() if name != "count"}
    check_inputs(RECORD, rest, defaulted=("count",))
    state = TensorRecord("input.cache.layers.0.keys", "float32", ("?", 2))
    check_inputs(RECORD, {**GOOD, state.name: np.ones((1, 2), np.float32)}, (state,))


def test_devices() -> None:
    check_device("onnx", "cuda")
    with pytest.raises(ArtifactError, match="openvino artifacts run on cpu, not on 'cuda'"):
        check_device("openvino", "cuda")
    with pytest.raises(ArtifactError, match="has the format 'tflite'"):
        check_device("tflite", "cpu")
