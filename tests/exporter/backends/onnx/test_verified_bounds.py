"""Bounds that the target gives hold at both ends, and its names are those of the graph."""

from __future__ import annotations

from pathlib import Path

import onnx

from exporter.backends.bounded import build_bounded, check_bounds


def test_both_ends_and_what_lies_outside(tmp_path: Path) -> None:
    built = build_bounded("onnx", tmp_path)
    record = check_bounds(built)
    graph = onnx.load(built.artifact / record.file, load_external_data=False).graph
    sizes = {
        value.name: [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in graph.input
    }
    # Names are symbols, what is STATIC a value, also inside a cache.
    assert sizes["input_ids"] == ["batch", "new"]
    assert sizes["input.cache.layers.0.values"] == ["batch", 2, "past", 16]
    assert sizes["attention_mask"][0] == "batch"
    assert isinstance(sizes["attention_mask"][1], str)
