"""The shared weights file: every tensor once, and what is read back is what was written."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx_ir

from model_export.exporter.backends.onnx.weights_file import WeightsFile


def test_tensors_are_read_back(tmp_path: Path) -> None:
    matrix = np.arange(600, dtype=np.float32).reshape(20, 30)
    tensors = [
        onnx_ir.tensor(matrix, name="plain"),
        onnx_ir.Tensor(matrix.T, name="transposed"),
        onnx_ir.Tensor(matrix.astype(ml_dtypes.bfloat16), name="bfloat16"),
        onnx_ir.Tensor(
            np.arange(-5, 5).astype(ml_dtypes.int4), dtype=onnx_ir.DataType.INT4, name="int4"
        ),
        onnx_ir.Tensor(np.array(True), name="scalar"),
    ]
    with WeightsFile(tmp_path / "w.data") as file:
        written = [file.add(tensor) for tensor in tensors]
    for before, after in zip(tensors, written, strict=True):
        assert (after.offset or 0) % 4096 == 0
        assert after.tobytes() == before.tobytes()
        assert (after.dtype, after.shape) == (before.dtype, before.shape)
        after.release()


def test_equal_bytes_are_written_once(tmp_path: Path) -> None:
    matrix = np.arange(4096, dtype=np.float32)
    lazy = onnx_ir.LazyTensor(
        lambda: onnx_ir.tensor(matrix.copy()), onnx_ir.DataType.FLOAT, onnx_ir.Shape([4096])
    )
    with WeightsFile(tmp_path / "w.data") as file:
        same_memory = [file.add(onnx_ir.Tensor(matrix)) for _ in range(2)]
        same_bytes = [file.add(onnx_ir.Tensor(matrix.copy())), file.add(lazy)]
        other = file.add(onnx_ir.Tensor(matrix + 1))
    assert {tensor.offset for tensor in same_memory + same_bytes} == {0}
    assert other.offset == matrix.nbytes
    assert (tmp_path / "w.data").stat().st_size == 2 * matrix.nbytes


def test_one_memory_seen_in_two_ways_is_two_tensors(tmp_path: Path) -> None:
    square = np.arange(64, dtype=np.float32).reshape(8, 8)
    with WeightsFile(tmp_path / "w.data") as file:
        as_is, transposed = file.add(onnx_ir.Tensor(square)), file.add(onnx_ir.Tensor(square.T))
    np.testing.assert_array_equal(transposed.numpy(), as_is.numpy().T)
