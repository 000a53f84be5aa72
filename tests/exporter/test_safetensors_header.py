from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from safetensors import SafetensorError, safe_open

from model_export.exporter.safetensors_header import SafetensorsError, TensorEntry, read_header


def _file(path: Path, header: Any, data: int = 0, length: int | None = None) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    length = len(text) if length is None else length
    path.write_bytes(struct.pack("<Q", length) + text + bytes(data))
    return path


def _tensor(begin: int, end: int, shape: Any = None, dtype: Any = "F32") -> dict[str, Any]:
    shape = [(end - begin) // 4] if shape is None else shape
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def test_good(tmp_path: Path) -> None:
    header = {"b": _tensor(0, 8), "__metadata__": {"format": "pt"}, "a": _tensor(8, 8, [0, 3])}
    start = 8 + len(json.dumps(header))

    assert read_header(_file(tmp_path / "x.safetensors", header, 8)) == {
        "b": TensorEntry("F32", (2,), start, start + 8),
        "a": TensorEntry("F32", (0, 3), start + 8, start + 8),
    }


@pytest.mark.parametrize(
    ("header", "data", "length", "message"),
    [
        ({"a": _tensor(0, 8)}, 7, None, "is truncated: "),
        ({"a": _tensor(0, 8)}, 9, None, "has 1 bytes after its last tensor"),
        ({"a": _tensor(0, 8)}, 8, 1000, "is truncated: it announces a header of 1000 bytes"),
        ({"a": _tensor(0, 8)}, 8, 1 << 60, "announces a header of 1152921504606846976 bytes"),
        ({"a": _tensor(0, 8)}, 8, 3, "has a header that isn't JSON"),
        ({"a": _tensor(0, 8), "b": _tensor(4, 12)}, 12, None, "that overlap: `a` and `b`"),
        ({"a": _tensor(0, 8), "b": _tensor(12, 16)}, 16, None, "a hole of 4 bytes before"),
        ({"a": _tensor(8, 0, [2])}, 8, None, "hold -8 bytes, where F32 [2] takes 8"),
        ({"a": _tensor(0, 8, [3])}, 8, None, "hold 8 bytes, where F32 [3] takes 12"),
        ({"a": _tensor(0, 8, [-2])}, 8, None, "`a` with the shape [-2]"),
        ({"a": _tensor(0, 8, 2)}, 8, None, "`a` with the shape 2"),
        ({"a": _tensor(0, 8, dtype="FLOAT")}, 8, None, "`a` of unknown dtype 'FLOAT'"),
        ({"a": {"dtype": "F32", "shape": [1]}}, 4, None, "with the data offsets None"),
        ({"a": 3}, 0, None, "`a` of unknown dtype None"),
        ([], 0, None, "isn't a JSON object"),
        (b'{"\xff": 1}', 0, None, "isn't UTF-8"),
        ({"__metadata__": {"n": 1}}, 0, None, "`__metadata__` that isn't an object of strings"),
    ],
)
def test_bad(tmp_path: Path, header: Any, data: int, length: int | None, message: str) -> None:
    path = _file(tmp_path / "x.safetensors", header, data, length)

    with pytest.raises(SafetensorsError) as caught:
        read_header(path)
    assert message in str(caught.value)
    # What is refused here is refused by the reference implementation too.
    with pytest.raises(SafetensorError):
        safe_open(path, "numpy").__enter__()


def test_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(b"")

    with pytest.raises(SafetensorsError, match="is truncated: 0 bytes"):
        read_header(path)


def test_a_name_twice(tmp_path: Path) -> None:
    one = json.dumps(_tensor(0, 4))
    with pytest.raises(SafetensorsError, match="names a tensor twice"):
        read_header(_file(tmp_path / "x", f'{{"a": {one}, "a": {one}}}'.encode(), 4))
