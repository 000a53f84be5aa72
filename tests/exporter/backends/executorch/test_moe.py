"""A mixture of experts: ExecuTorch has no grouped product, so the engine multiplies in batches."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

from exporter.backends.tiny_models import VOCABULARY, export, left_padded, make_spec
from model_export.runtime.graph import open_graph


def _one_layer_of_experts() -> Qwen3MoeForCausalLM:
    config = Qwen3MoeConfig(
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        intermediate_size=64,
        moe_intermediate_size=32,
        num_experts=4,
        num_experts_per_tok=2,
        vocab_size=VOCABULARY,
        max_position_embeddings=64,
        pad_token_id=0,
        use_cache=False,
    )
    torch.manual_seed(0)
    return Qwen3MoeForCausalLM(config).eval()


def test_experts_in_batches_compute_what_grouped_ones_do(tmp_path: Path) -> None:
    model = _one_layer_of_experts()
    shapes = [left_padded(2, 8, 3), left_padded(3, 13, 4, seed=1)]
    with torch.no_grad():
        expected = [model(**inputs).logits for inputs in shapes]
    before = model.config._experts_implementation
    records = export(model, shapes[0], make_spec("executorch", {"dynamic": True}), tmp_path)
    assert (before, model.config._experts_implementation) == ("grouped_mm", "batched_mm")
    graph = open_graph(tmp_path, "executorch", records["model"])
    for inputs, logits in zip(shapes, expected, strict=True):
        (name,) = (tensor.name for tensor in graph.record.outputs)
        found = graph.run({key: value.numpy() for key, value in inputs.items()})[name]
        kept = inputs["attention_mask"].numpy() == 1
        np.testing.assert_allclose(found[kept], logits.numpy()[kept], atol=1e-5)
