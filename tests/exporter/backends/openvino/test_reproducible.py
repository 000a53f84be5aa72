"""Equal specs give equal bytes, wherever they are built."""

from __future__ import annotations

from pathlib import Path

from exporter.backends.quantized import quantized_spec
from exporter.backends.tiny_models import generation_spec, tiny_bert, tiny_qwen3
from exporter.backends.two_builds import build_twice
from model_export.plugin.quantizer_checks import check_quantizer


def test_bytes_do_not_depend_on_the_surroundings(tmp_path: Path) -> None:
    """Of a graph in floats, and of one that is quantized by what it computes."""
    spec = generation_spec(
        "openvino",
        {},
        components=("prefill", "decode"),
        quantizer=check_quantizer({"decode": {"type": "NNCFOpenVINOQuantizer"}}),
    )
    one, another = build_twice(tiny_qwen3(), spec, tmp_path)
    assert {"openvino_decode.xml", "openvino_weights.bin"} <= {file.path for file in one}
    assert one == another


def test_nor_do_weights_of_four_bits(tmp_path: Path) -> None:
    """That NNCF chooses by what the layers compute."""
    model = tiny_bert()
    quantizer = {
        "type": "NNCFOpenVINOQuantizer",
        "config": "NNCFWeightCompressionConfig",
        "mode": "INT4_SYM",
        "group_size": 32,
        "scale_estimation": True,
    }
    one, another = build_twice(model, quantized_spec(model, "openvino", quantizer), tmp_path)
    assert one == another
