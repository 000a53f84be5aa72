"""Equal specs give equal bytes, wherever they are built."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from exporter.backends.quantized import quantized_spec
from exporter.backends.tiny_models import generation_spec, tiny_bert, tiny_qwen3
from exporter.backends.two_builds import build_twice


def test_bytes_do_not_depend_on_the_surroundings(tmp_path: Path) -> None:
    spec = generation_spec("onnx", {}, components=("prefill", "decode"))
    one, another = build_twice(tiny_qwen3(), spec, tmp_path)
    assert {"prefill.onnx", "decode.onnx", "model.onnx.data"} <= {file.path for file in one}
    assert one == another


@pytest.mark.parametrize(
    "quantizer",
    [
        {"type": "OnnxRuntimeQuantizer"},
        {
            "type": "NNCFOnnxQuantizer",
            "config": "NNCFWeightCompressionConfig",
            "mode": "INT4_SYM",
            "group_size": 32,
            "awq": True,
        },
    ],
    ids=lambda item: "-".join(map(str, item.values())),
)
def test_quantized_bytes_do_not_depend_on_them_either(
    quantizer: dict[str, Any], tmp_path: Path
) -> None:
    model = tiny_bert()
    one, another = build_twice(model, quantized_spec(model, "onnx", quantizer), tmp_path)
    assert one == another
