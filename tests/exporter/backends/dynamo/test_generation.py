"""Decode graphs loaded from their files, against eager `generate`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree
from transformers import Qwen3ForCausalLM, StaticCache
from transformers.exporters.exporter_dynamo import register_pytree_node

from exporter.backends.tiny_models import (
    HEAD_DIM,
    KV_HEADS,
    export,
    generation_spec,
    greedy,
    left_padded,
    positions_of,
    tiny_qwen3,
)
from model_export.manifest import ComponentRecord
from model_export.runtime.graphs.saved_program import empty_cache, load

STEPS = 5
CACHE_LENGTH = 32


@pytest.fixture(scope="module")
def model() -> Qwen3ForCausalLM:
    return tiny_qwen3()


@pytest.fixture(scope="module")
def growing(
    model: Qwen3ForCausalLM, tmp_path_factory: pytest.TempPathFactory
) -> tuple[ComponentRecord, Path]:
    folder = tmp_path_factory.mktemp("growing")
    records = export(model, left_padded(2, 8, 3), generation_spec("dynamo", {}), folder)
    return records["decode"], folder


@pytest.mark.parametrize(("batch", "sequence"), [(2, 8), (3, 13), (1, 5)])
def test_growing_cache_serves_prompt_and_steps(
    model: Qwen3ForCausalLM,
    growing: tuple[ComponentRecord, Path],
    batch: int,
    sequence: int,
) -> None:
    record, folder = growing
    program = load(folder / record.file)
    forward = program.module()
    inputs = left_padded(batch, sequence, 2, seed=1)
    mask, ids, cache = inputs["attention_mask"], inputs["input_ids"], empty_cache(program, batch)
    positions, tokens = positions_of(mask), []
    for _ in range(STEPS):
        output = forward(input_ids=ids, attention_mask=mask, position_ids=positions, cache=cache)
        cache, ids = output.cache, output.logits[:, -1:].argmax(-1)
        mask = torch.cat([mask, torch.ones_like(ids)], dim=1)
        positions = positions[:, -1:] + 1
        tokens.append(ids)
    assert torch.equal(torch.cat(tokens, dim=1), greedy(model, inputs, STEPS))


def test_record_names_what_the_graph_takes_and_gives(
    growing: tuple[ComponentRecord, Path],
) -> None:
    record, _ = growing
    keys = next(tensor for tensor in record.inputs if tensor.name == "input.cache.layers.1.keys")
    past = "input.cache.layers.0.keys.2"
    assert keys.dtype == "float32"
    assert keys.shape == ("input_ids.0", KV_HEADS, past, HEAD_DIM)
    assert [tensor.name for tensor in record.outputs[:2]] == [
        "logits",
        "output.cache.layers.0.keys",
    ]
    assert record.outputs[1].shape == (
        "input_ids.0",
        KV_HEADS,
        f"{past} + input_ids.1",
        HEAD_DIM,
    )


@pytest.fixture(scope="module")
def static(model: Qwen3ForCausalLM, tmp_path_factory: pytest.TempPathFactory) -> Path:
    spec = generation_spec(
        "dynamo",
        {},
        generation_config={"cache_implementation": "static", "max_cache_len": CACHE_LENGTH},
    )
    folder = tmp_path_factory.mktemp("static")
    export(model, left_padded(2, 8, 3), spec, folder)
    return folder / "decode.pt2"


@pytest.mark.parametrize("batch", [2, 3, 1])
def test_static_cache_is_updated_in_place_at_any_batch(
    model: Qwen3ForCausalLM, static: Path, batch: int
) -> None:
    program = load(static)
    forward = program.module()
    inputs = left_padded(batch, 6, 2, seed=1)
    ids, mask, cache = inputs["input_ids"], inputs["attention_mask"], empty_cache(program, batch)
    positions, past, tokens = positions_of(mask), 0, []
    for _ in range(STEPS):
        output = forward(
            input_ids=ids,
            attention_mask={"full_attention": causal_mask(mask, past, ids.shape[1])},
            position_ids=positions,
            cache=cache,
        )
        past += ids.shape[1]
        ids, positions = output.logits[:, -1:].argmax(-1), positions[:, -1:] + 1
        tokens.append(ids)
    assert torch.equal(torch.cat(tokens, dim=1), greedy(model, inputs, STEPS))
    assert int(pytree.tree_leaves(cache)[2]) == past  # The first layer's counter.


def causal_mask(prompt_mask: torch.Tensor, past: int, query: int) -> torch.Tensor:
    """The mask (batch, 1, query, CACHE_LENGTH) of `query` tokens after `past` others."""
    slots = torch.arange(CACHE_LENGTH)
    seen = slots[None] <= (past + torch.arange(query))[:, None]
    real = torch.ones(len(prompt_mask), CACHE_LENGTH, dtype=torch.bool)
    real[:, : prompt_mask.shape[1]] = prompt_mask.bool()
    return seen[None, None] & real[:, None, None]


def test_engine_still_ties_a_static_cache_to_its_batch() -> None:
    """Once this fails, `static_cache.forget_traced_batch` can go (transformers 5.24.0)."""
    register_pytree_node(StaticCache)
    assert _spec_of_static_cache(2) != _spec_of_static_cache(3)


def _spec_of_static_cache(batch: int) -> Any:
    cache = StaticCache(config=tiny_qwen3().config, max_cache_len=CACHE_LENGTH)
    states = torch.zeros(batch, KV_HEADS, 1, HEAD_DIM)
    cache.update(states, states, 0)
    cache.update(states, states, 1)
    return pytree.tree_structure(cache)
