"""Equal specs give equal bytes, wherever they are built."""

from __future__ import annotations

from pathlib import Path

from exporter.backends.tiny_models import generation_spec, tiny_qwen3
from exporter.backends.two_builds import build_twice


def test_bytes_do_not_depend_on_the_surroundings(tmp_path: Path) -> None:
    spec = generation_spec("onnx", {}, components=("prefill", "decode"))
    one, another = build_twice(tiny_qwen3(), spec, tmp_path)
    assert {"prefill.onnx", "decode.onnx", "model.onnx.data"} <= {file.path for file in one}
    assert one == another
