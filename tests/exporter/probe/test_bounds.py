"""At which sizes a component is called where the target bounds its dimensions."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers.exporters.utils import get_leaf_tensors

from exporter.backends.tiny_models import (
    generation_spec,
    left_padded,
    make_spec,
    tiny_bert,
    tiny_qwen3,
)
from model_export.exporter.components import build_components
from model_export.exporter.errors import ExportError
from model_export.exporter.probe.bounds import MOST_ELEMENTS, cases_at_bounds
from model_export.exporter.probe.graph_cases import record_graph_cases
from model_export.exporter.probe.tensors import ProbeTensors
from model_export.spec import ExportSpec

AXES = {"0": "batch", "1": "seq"}
DECODE = {
    "input_ids": AXES,
    "attention_mask": {"0": "batch", "1": "AUTO"},
    "position_ids": AXES,
    "cache": {"0": "batch", "2": "past"},
}


def _calls(model: Any, spec: ExportSpec) -> dict[str, dict[str, tuple[int, ...]]]:
    """The shapes of each call at a bound, by its name."""
    inputs = left_padded(2, 8, 3)
    found = {}
    for component in build_components(model, inputs, spec):
        for name, made in cases_at_bounds(model, inputs, spec, component):
            leaves = get_leaf_tensors(dict(made.inputs))
            found[f"{component.name}, {name}"] = {k: tuple(t.shape) for k, t in leaves.items()}
            with torch.no_grad():
                made.module(**made.inputs)
    return found


def test_all_dimensions_are_at_their_lower_ends_and_at_their_upper_ones() -> None:
    shapes = {"dynamic_shapes": {"input_ids": AXES, "attention_mask": AXES}}
    spec = make_spec("dynamo", shapes, dims={"batch": (1, 5), "seq": (1, 64)})
    assert _calls(tiny_bert(), spec) == {
        "model, lower bounds: batch 1, seq 1": {"input_ids": (1, 1), "attention_mask": (1, 1)},
        "model, upper bounds: batch 5, seq 64": {"input_ids": (5, 64), "attention_mask": (5, 64)},
    }


def test_a_decode_graph_has_bounds_of_its_cache_too() -> None:
    spec = generation_spec(
        "dynamo",
        {"dynamic_shapes": DECODE},
        dims={"batch": (1, 3), "seq": (1, 7), "past": (0, 20)},
    )
    calls = _calls(tiny_qwen3(), spec)
    assert list(calls) == [
        "decode, lower bounds: batch 1, seq 1, past 0",
        "decode, upper bounds: batch 3, seq 7, past 20",
    ]
    lower, upper = calls.values()
    assert (lower["attention_mask"], lower["position_ids"]) == ((1, 1), (1, 1))
    assert lower["cache.layers.1.values"] == (1, 2, 0, 16)
    assert (upper["attention_mask"], upper["position_ids"]) == ((3, 27), (3, 7))
    assert upper["cache.layers.1.values"] == (3, 2, 20, 16)


def test_each_component_is_called_at_the_bounds_of_its_own() -> None:
    own = {"input_ids": AXES, "attention_mask": AXES, "position_ids": AXES}
    spec = generation_spec(
        "dynamo",
        {},
        multi_token_decode=False,
        component_config={"prefill": {"dynamic_shapes": own}},
        dims={"batch": (1, 3), "seq": (1, 20)},
    )
    calls = _calls(tiny_qwen3(), spec)
    assert {name: shapes["attention_mask"] for name, shapes in calls.items()} == {
        "prefill, lower bounds: batch 1, seq 1": (1, 1),
        "prefill, upper bounds: batch 3, seq 20": (3, 20),
    }


def test_what_costs_too_much_is_smaller_and_says_so() -> None:
    shapes = {"dynamic_shapes": {"input_ids": AXES, "attention_mask": AXES}}
    spec = make_spec("dynamo", shapes, dims={"batch": (1, 32), "seq": (1, 2048)})
    calls = _calls(tiny_qwen3(), spec)
    # Four heads: 32 x 4 x 512 x 512 scores are as many as are allowed.
    assert MOST_ELEMENTS == 32 * 4 * 512 * 512
    assert {name: shapes["input_ids"] for name, shapes in calls.items()} == {
        "model, lower bounds: batch 1, seq 1": (1, 1),
        "model, upper bounds: batch 32, seq 512 (not 2048)": (32, 512),
        "model, upper bound of seq: batch 1, seq 2048": (1, 2048),
    }


def test_dimensions_without_bounds_have_no_ends() -> None:
    shapes = {"dynamic_shapes": {"input_ids": AXES, "attention_mask": AXES}}
    assert _calls(tiny_bert(), make_spec("dynamo", shapes)) == {}
    assert _calls(tiny_bert(), make_spec("dynamo", {"dynamic": True})) == {}


def test_bounds_beyond_what_the_model_takes_are_refused() -> None:
    shapes = {"dynamic_shapes": {"input_ids": AXES, "attention_mask": AXES}}
    # The positions of this BERT end at 64.
    spec = make_spec("dynamo", shapes, dims={"batch": (1, 4), "seq": (1, 100)})
    cases = record_graph_cases(tiny_bert(), left_padded(2, 8, 3), spec, ProbeTensors())
    with pytest.raises(
        ExportError, match=r"`dims` has bounds that the model itself fails at \(upp"
    ):
        list(cases)
