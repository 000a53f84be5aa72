"""The same spec gives the same bytes wherever it is built."""

from __future__ import annotations

from pathlib import Path

from exporter.backends.executorch.one_layer import one_layer_qwen3
from exporter.backends.quantized import quantized_spec
from exporter.backends.tiny_models import generation_spec, tiny_bert
from exporter.backends.two_builds import build_twice


def test_two_builds_are_equal(tmp_path: Path) -> None:
    one, another = build_twice(one_layer_qwen3(), generation_spec("executorch", {}), tmp_path)
    assert {file.path for file in one} > {"decode.pte", "manifest.copy.json"}
    assert one == another


def test_quantized_bytes_do_not_depend_on_them_either(tmp_path: Path) -> None:
    quantizer = {"type": "PT2EQuantizer", "quantizer": "XNNPACKQuantizer"}
    model = tiny_bert()
    one, another = build_twice(model, quantized_spec(model, "executorch", quantizer), tmp_path)
    assert one == another
