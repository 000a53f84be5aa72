"""The table of docs/quantization.md from measurements."""

from __future__ import annotations

import pytest
from support.quality_record import NEAREST, PERPLEXITY, Quality
from support.quality_table import replace_table

_INT8 = {"type": "OnnxRuntimeQuantizer", "config": "OnnxRuntimeDynamicConfig", "per_channel": True}


def test_rows_are_compared_with_their_own_float32() -> None:
    page = replace_table(
        "# Title\n\n## Measured\nold\n",
        [
            Quality("a", "onnx", "m", None, 4 << 20, NEAREST, 1.0),
            Quality("b", "onnx", "m", _INT8, 1 << 20, NEAREST, 0.96875),
            Quality("c", "openvino", "m", _INT8, 1 << 20, NEAREST, 0.5),
            Quality("d", "onnx", "n", None, 2 << 20, PERPLEXITY, 12.346),
        ],
    )
    assert page.startswith("# Title\n\n## Measured\n")
    assert "old" not in page
    assert "| `a` | none | 4.0 | 100% | 100.0% |" in page
    label = "OnnxRuntimeQuantizer OnnxRuntimeDynamicConfig `per_channel=True`"
    assert f"| `b` | {label} | 1.0 | 25% | 96.9% |" in page
    assert "| 1.0 |  | 50.0% |" in page
    assert "| `d` | none | 2.0 | 100% | 12.35 |" in page


def test_a_page_without_the_heading_is_refused() -> None:
    with pytest.raises(ValueError, match="has no heading"):
        replace_table("# Title\n", [])
