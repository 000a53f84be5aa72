"""What the probe records of single graph calls."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from exporter.backends.tiny_models import (
    generation_spec,
    left_padded,
    make_spec,
    tiny_bert,
    tiny_qwen3,
)
from model_export.exporter.probe import record_probe
from model_export.probe import TENSORS_FILE, GraphCase, Probe, read_probe


def record(folder: Path, generates: bool) -> tuple[Probe, dict[str, torch.Tensor]]:
    model = tiny_qwen3() if generates else tiny_bert()
    spec = generation_spec("dynamo", {}) if generates else make_spec("dynamo", {"dynamic": True})
    record_probe(model, None, left_padded(2, 8, 3), spec, folder)
    return read_probe(folder), load_file(folder / TENSORS_FILE)


def test_a_plain_model_is_called_at_the_traced_shape_and_at_two_others(tmp_path: Path) -> None:
    probe, tensors = record(tmp_path, generates=False)
    shapes = [tuple(tensors[case.inputs["input_ids"]].shape) for case in probe.graphs]
    assert shapes == [(2, 8), (1, 13), (3, 6)]
    assert [case.traced for case in probe.graphs] == [True, False, False]
    assert not probe.generations


def test_outputs_are_those_of_the_model_itself(tmp_path: Path) -> None:
    probe, tensors = record(tmp_path, generates=False)
    model = tiny_bert()
    for case in probe.graphs:
        inputs = {name: tensors[key] for name, key in case.inputs.items()}
        with torch.no_grad():
            expected = model(**inputs).last_hidden_state
        torch.testing.assert_close(
            tensors[case.outputs["last_hidden_state"]], expected, rtol=0, atol=1e-6
        )


@pytest.mark.parametrize("generates", [False, True])
def test_every_call_has_a_mask_with_padding_in_it(tmp_path: Path, generates: bool) -> None:
    probe, tensors = record(tmp_path, generates)
    for case in probe.graphs:
        mask = tensors[case.inputs["attention_mask"]]
        assert not mask.all(), case.name


def test_padding_is_named_where_it_covers_positions_of_the_call(tmp_path: Path) -> None:
    plain, _ = record(tmp_path / "plain", generates=False)
    decode, _ = record(tmp_path / "decode", generates=True)
    assert {case.padding for case in plain.graphs} == {"attention_mask"}
    # The two new tokens of a decode call are real ones, whatever the past has.
    assert {case.padding for case in decode.graphs} == {None}


def test_a_cache_is_recorded_as_it_was_before_the_call(tmp_path: Path) -> None:
    probe, tensors = record(tmp_path, generates=True)
    case: GraphCase = probe.graphs[0]
    before = tensors[case.inputs["cache.layers.0.keys"]]
    after = tensors[case.outputs["cache.layers.0.keys"]]
    assert (before.shape[2], after.shape[2]) == (8, 10)
    assert torch.equal(after[:, :, :8], before)


def test_a_static_spec_gets_other_values_at_the_traced_shape_once(tmp_path: Path) -> None:
    record_probe(tiny_bert(), None, left_padded(2, 8, 3), make_spec("dynamo", {}), tmp_path)
    probe, tensors = read_probe(tmp_path), load_file(tmp_path / TENSORS_FILE)
    ids = [tensors[case.inputs["input_ids"]] for case in probe.graphs]
    assert [tuple(item.shape) for item in ids] == [(2, 8), (2, 8)]
    assert not torch.equal(*ids)


def test_sizes_stay_within_the_bounds_of_the_spec(tmp_path: Path) -> None:
    axes = {0: "STATIC", 1: "sequence"}
    spec = make_spec(
        "dynamo",
        {"dynamic_shapes": {"input_ids": axes, "attention_mask": axes}},
        dims={"sequence": (7, 10)},
    )
    record_probe(tiny_bert(), None, left_padded(2, 8, 3), spec, tmp_path)
    probe, tensors = read_probe(tmp_path), load_file(tmp_path / TENSORS_FILE)
    shapes = [tuple(tensors[case.inputs["input_ids"]].shape) for case in probe.graphs]
    # The last two are the bounds themselves.
    assert shapes == [(2, 8), (2, 10), (2, 7), (2, 7), (2, 10)]
