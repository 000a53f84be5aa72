"""From a target's `dynamic_shapes` to what `torch.export` takes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._dynamo.exc import UserError
from torch.export import Dim
from transformers import DynamicCache, PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

from model_export.exporter.dynamic_shapes import (
    build_dynamic_shapes,
    check_input_names,
    recorded_bounds,
)
from model_export.exporter.errors import ExportError
from model_export.manifest import TensorRecord
from model_export.spec import ExportSpec


@pytest.fixture(scope="module")
def model() -> PreTrainedModel:
    config = Qwen3Config(
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        vocab_size=64,
    )
    return Qwen3ForCausalLM(config).eval()


def _inputs(model: PreTrainedModel) -> dict[str, Any]:
    cache = DynamicCache(config=model.config)
    for layer in range(2):
        cache.update(torch.zeros(2, 1, 4, 16), torch.zeros(2, 1, 4, 16), layer)
    return {
        "input_ids": torch.zeros(2, 3, dtype=torch.int64),
        "attention_mask": torch.ones(2, 7, dtype=torch.int64),
        "cache": cache,
        "use_cache": True,
    }


def _spec(shapes: Any, **dims: tuple[int, int]) -> ExportSpec:
    return ExportSpec("onnx", {"dynamic_shapes": shapes}, dims=dims)


def test_no_shapes_leave_the_choice_to_the_engine(model: PreTrainedModel) -> None:
    shapes = build_dynamic_shapes(model, _inputs(model), _spec(None))
    assert (shapes.tree, shapes.names) == (None, {})


def test_names_are_shared_and_bounded(model: PreTrainedModel) -> None:
    spec = _spec(
        {
            "input_ids": {"0": "batch", "1": "AUTO"},
            "attention_mask": {"0": "batch", "1": "STATIC"},
            "cache": {"0": "batch", "2": "past"},
        },
        batch=(1, 8),
    )
    shapes = build_dynamic_shapes(model, _inputs(model), spec)
    assert shapes.tree is not None
    batch = shapes.tree["input_ids"][0]
    assert (batch.__name__, batch.min, batch.max) == ("batch", 1, 8)
    assert shapes.tree["input_ids"][1] is Dim.AUTO
    assert shapes.tree["attention_mask"] == {0: batch, 1: Dim.STATIC}
    past = shapes.tree["cache"][0][2]
    assert past.__name__ == "past"
    assert shapes.tree["cache"] == [{0: batch, 2: past}] * 4
    assert shapes.tree["use_cache"] is None
    named = {0: "batch", 2: "past"}
    assert shapes.names == {
        "input_ids": {0: "batch"},
        "attention_mask": {0: "batch"},
        **{f"cache.layers.{i}.{part}": named for i in (0, 1) for part in ("keys", "values")},
    }


def test_the_tree_is_one_that_torch_export_takes(model: PreTrainedModel) -> None:
    axes = {"0": "batch"}
    spec = _spec({"input_ids": axes, "attention_mask": axes, "cache": axes}, batch=(2, 8))
    inputs = _inputs(model)
    shapes = build_dynamic_shapes(model, inputs, spec)
    with torch.no_grad():
        program = torch.export.export(
            model, (), kwargs=inputs, dynamic_shapes=shapes.tree, strict=False
        )
    placeholders = {n.name: n.meta["val"] for n in program.graph.nodes if n.op == "placeholder"}
    assert isinstance(placeholders["input_ids"].shape[0], torch.SymInt)
    assert placeholders["input_ids"].shape[1] == 3


def test_a_list_goes_tensor_by_tensor(model: PreTrainedModel) -> None:
    items = [{"0": "a"}, None, {"0": "b"}, None]
    shapes = build_dynamic_shapes(model, _inputs(model), _spec({"cache": items}))
    assert shapes.tree is not None
    assert [item and item[0].__name__ for item in shapes.tree["cache"]] == ["a", None, "b", None]
    assert shapes.names == {"cache.layers.0.keys": {0: "a"}, "cache.layers.1.keys": {0: "b"}}
    with pytest.raises(ExportError, match=r"\['cache'\]` has 1 items for 4 tensors"):
        build_dynamic_shapes(model, _inputs(model), _spec({"cache": [None]}))


def test_an_axis_the_tensor_lacks_is_refused(model: PreTrainedModel) -> None:
    with pytest.raises(ExportError, match=r"\['input_ids'\]\[2\]` is not an axis.*from 0 to 1"):
        build_dynamic_shapes(model, _inputs(model), _spec({"input_ids": {"2": "x"}}))


def test_a_size_that_a_trace_would_freeze_is_refused(model: PreTrainedModel) -> None:
    """Torch's own refusal speaks of constraints; once it takes 1, this test's last part fails."""
    inputs = {"input_ids": torch.zeros(1, 3, dtype=torch.int64)}
    spec = _spec({"input_ids": {"0": "batch"}}, batch=(1, 8))
    with pytest.raises(ExportError, match=r"\['input_ids'\]\[0\]` names 'batch' where .* has 1,"):
        build_dynamic_shapes(model, inputs, spec)
    shapes = {"input_ids": {0: Dim("batch", min=1, max=8)}}
    with pytest.raises(UserError, match="specialized"), torch.no_grad():
        torch.export.export(model, (), kwargs=inputs, dynamic_shapes=shapes, strict=False)


def test_the_traced_size_is_within_the_bounds(model: PreTrainedModel) -> None:
    spec = _spec({"input_ids": {"1": "seq"}}, seq=(4, 8))
    with pytest.raises(
        ExportError, match=r"`dims\['seq'\]` is \(4, 8\), and the traced .* has 3 at"
    ):
        build_dynamic_shapes(model, _inputs(model), spec)


def test_an_input_that_no_component_has_is_refused(model: PreTrainedModel) -> None:
    spec = _spec({"input_ids": {"0": "batch"}, "pixel_values": {"0": "batch"}})
    inputs = _inputs(model)
    with pytest.raises(ExportError, match=r"\['pixel_values'\]` is not an input of any component"):
        check_input_names(spec, {"decode": inputs})
    images = {"pixel_values": torch.zeros(1)}
    check_input_names(spec, {"decode": inputs, "image_encoder": images})


def test_bounds_of_what_occurs_are_recorded() -> None:
    spec = _spec({"x": {"0": "batch", "1": "length"}}, batch=(1, 8), length=(2, 64))
    assert recorded_bounds([TensorRecord("x", "int64", ("batch", 3))], spec) == {"batch": (1, 8)}
