"""A decoder whose dimensions the target names and bounds: built, verified, and called outside."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from exporter.backends.tiny_models import VOCABULARY, generation_spec, left_padded
from model_export.manifest import ComponentRecord
from model_export.runtime.errors import InputError
from model_export.runtime.graph import Array, open_graph
from verifier.artifacts import Built, build
from verifier.wrong_modules import one_layer_decoder

BOUNDS = {"batch": (1, 4), "new": (1, 24), "past": (0, 40)}
_LOWER = "lower bounds: batch 1, new 1, past 0"
_UPPER = "upper bounds: batch 4, new 24, past 40"


def build_bounded(export_format: str, folder: Path, **config: bool) -> Built:
    """A multi-token decode graph with every dimension named, but for the sum of two."""
    axes = {"0": "batch", "1": "new"}
    spec = generation_spec(
        export_format,
        {
            "dynamic_shapes": {
                "input_ids": axes,
                "attention_mask": {"0": "batch", "1": "AUTO"},
                "position_ids": axes,
                "cache": {"0": "batch", "1": "STATIC", "2": "past"},
            },
            "prefer_deferred_runtime_asserts_over_guards": True,
            **config,
        },
        dims=BOUNDS,
    )
    return build(one_layer_decoder, left_padded(2, 8, 3), spec, folder)


def check_bounds(built: Built, cache_is_fed: bool = True) -> ComponentRecord:
    """Both ends are verified; beyond them, the runtime names input and dimension."""
    verdict = built.verify()
    assert verdict.failure is None
    assert {_LOWER, _UPPER} <= {case.case for case in verdict.cases if case.component == "decode"}
    record = built.record("decode")
    shapes = {tensor.name: tensor.shape for tensor in record.inputs}
    assert shapes["input_ids"] == ("batch", "new")
    used = {name: bounds for name, bounds in BOUNDS.items() if cache_is_fed or name != "past"}
    assert {name: record.bounds[name] for name in used} == used
    graph = open_graph(built.artifact, built.manifest.export_format, record)
    if cache_is_fed:
        assert shapes["input.cache.layers.0.keys"] == ("batch", 2, "past", 16)
        _refuses(graph.run, record, "past", {"batch": 1, "new": 1, "past": 41})
    _refuses(graph.run, record, "batch", {"batch": 5, "new": 1, "past": 3})
    _refuses(graph.run, record, "batch", {"batch": 0, "new": 1, "past": 3})
    _refuses(graph.run, record, "new", {"batch": 1, "new": 25, "past": 3})
    return record


def _refuses(run: object, record: ComponentRecord, dimension: str, sizes: dict[str, int]) -> None:
    assert callable(run)
    low, high = BOUNDS[dimension]
    with pytest.raises(InputError) as caught:
        run(_inputs(record, sizes))
    said = str(caught.value)
    expected = f"with {low} to {high} at axis"
    assert expected in said
    assert f"({dimension}), not {sizes[dimension]}: stay inside" in said
    assert said.startswith("`decode` takes `")


def _inputs(record: ComponentRecord, sizes: dict[str, int]) -> dict[str, Array]:
    total = sizes["past"] + sizes["new"]
    inputs: dict[str, Array] = {}
    for tensor in record.inputs:
        shape = tuple(sizes.get(str(dim), dim) for dim in tensor.shape)
        fixed = tuple(size if isinstance(size, int) else total for size in shape)
        low, high = (1, 2) if tensor.name == "attention_mask" else (0, VOCABULARY)
        draw = np.random.default_rng(0)
        if tensor.dtype.startswith("int"):
            inputs[tensor.name] = draw.integers(low, high, fixed).astype(tensor.dtype)
        else:
            inputs[tensor.name] = draw.random(fixed, dtype=np.float32)
    return inputs
