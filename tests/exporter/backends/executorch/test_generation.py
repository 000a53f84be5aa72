"""Decode graphs in ExecuTorch's runtime, against eager `generate`."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from executorch.runtime import Runtime
from transformers import Qwen3ForCausalLM
from transformers.exporters import DynamoConfig, DynamoExporter

from exporter.backends.tiny_models import (
    HEAD_DIM,
    KV_HEADS,
    VOCABULARY,
    export,
    generation_spec,
    greedy,
    left_padded,
    positions_of,
)
from model_export.exporter.backends.dynamo.static_cache import batch_forgotten
from model_export.exporter.components import build_components
from model_export.manifest import ComponentRecord

STEPS = 4
CACHE_LENGTH = 32
LONGEST = 256  # The model's max_position_embeddings.


def _method(path: Path) -> Any:
    return Runtime.get().load_program(path).load_method("forward")


# The engine alone caps every dimension of a decoder traced on eight tokens at 64.
@pytest.mark.parametrize(("batch", "sequence"), [(2, 8), (3, 13), (1, 5), (2, 200)])
def test_growing_cache_serves_prompt_and_steps(
    model: Qwen3ForCausalLM,
    growing: tuple[ComponentRecord, Path, list[str]],
    batch: int,
    sequence: int,
) -> None:
    _, file, _ = growing
    method = _method(file)
    inputs = left_padded(batch, sequence, 2, seed=1)
    ids, mask = inputs["input_ids"], inputs["attention_mask"]
    positions, tokens = positions_of(mask), []
    cache = [torch.zeros(batch, KV_HEADS, 0, HEAD_DIM) for _ in ("keys", "values")]
    for _ in range(STEPS):
        logits, *cache = [
            output.clone() for output in method.execute([ids, mask, positions, *cache])
        ]
        ids = logits[:, -1:].argmax(-1)
        mask = torch.cat([mask, torch.ones_like(ids)], dim=1)
        positions = positions[:, -1:] + 1
        tokens.append(ids)
    assert torch.equal(torch.cat(tokens, dim=1), greedy(model, inputs, STEPS))


def test_record_agrees_with_the_file(growing: tuple[ComponentRecord, Path, list[str]]) -> None:
    record, file, _ = growing
    method = _method(file)
    past = "input.cache.layers.0.keys.2"
    assert [tensor.name for tensor in record.inputs] == [
        "input_ids",
        "attention_mask",
        "position_ids",
        "input.cache.layers.0.keys",
        "input.cache.layers.0.values",
    ]
    assert record.inputs[3].shape == ("input_ids.0", KV_HEADS, past, HEAD_DIM)
    assert record.outputs[0].shape == ("input_ids.0", "input_ids.1", VOCABULARY)
    assert record.bounds["input_ids.1"] == (0, LONGEST)
    for index, tensor in enumerate(record.inputs):
        largest = [
            record.bounds[size][1] if isinstance(size, str) else size for size in tensor.shape
        ]
        assert list(method.metadata.input_tensor_meta(index).sizes()) == largest


def test_static_cache_comes_out_updated(model: Qwen3ForCausalLM, tmp_path: Path) -> None:
    spec = generation_spec(
        "executorch",
        {},
        generation_config={"cache_implementation": "static", "max_cache_len": CACHE_LENGTH},
    )
    record = export(model, left_padded(2, 8, 3), spec, tmp_path)["decode"]
    names = [tensor.name for tensor in record.outputs]
    updated = [f"updated.cache.layers.0.{part}" for part in ("keys", "values", "cumulative_length")]
    assert names[: len(updated)] == updated
    assert record.bounds["attention_mask.full_attention.3"] == (0, CACHE_LENGTH)
    method = _method(tmp_path / record.file)
    for batch in (2, 3):
        inputs = left_padded(batch, 6, 2, seed=1)
        ids, mask = inputs["input_ids"], inputs["attention_mask"]
        positions, past, tokens = positions_of(mask), 0, []
        shape = (batch, KV_HEADS, CACHE_LENGTH, HEAD_DIM)
        cache = [torch.zeros(shape), torch.zeros(shape), torch.tensor(0)]
        for _ in range(STEPS):
            slots = torch.arange(CACHE_LENGTH)
            seen = slots[None] <= (past + torch.arange(ids.shape[1]))[:, None]
            real = torch.ones(batch, CACHE_LENGTH, dtype=torch.bool)
            real[:, :6] = mask.bool()
            allowed = seen[None, None] & real[:, None, None]
            outputs = [
                output.clone() for output in method.execute([ids, allowed, positions, *cache])
            ]
            cache, past = outputs[: len(updated)], past + ids.shape[1]
            ids = outputs[names.index("logits")][:, -1:].argmax(-1)
            positions = positions[:, -1:] + 1
            tokens.append(ids)
        assert torch.equal(torch.cat(tokens, dim=1), greedy(model, inputs, STEPS))
        assert int(cache[2]) == past


@pytest.mark.parametrize(
    ("context", "numbers"),
    # If the first fails, the engine has no batch among the outputs: `batch_forgotten` can go.
    [(nullcontext(), 1), (batch_forgotten(), 0)],
)
def test_a_static_cache_comes_out_without_its_batch(
    model: Qwen3ForCausalLM, context: AbstractContextManager[None], numbers: int
) -> None:
    spec = generation_spec(
        "executorch",
        {},
        multi_token_decode=False,
        components=("prefill",),
        generation_config={"cache_implementation": "static", "max_cache_len": CACHE_LENGTH},
    )
    (prefill,) = build_components(model, left_padded(2, 8, 3), spec)
    with context:
        program, _ = DynamoExporter().export_program(
            prefill.module, prefill.inputs, DynamoConfig(dynamic=True)
        )
    values = {node.name: node.meta.get("val") for node in program.graph.nodes}
    given = [values[name] for name in program.graph_signature.user_outputs]
    assert [isinstance(value, torch.SymInt) for value in given].count(True) == numbers
