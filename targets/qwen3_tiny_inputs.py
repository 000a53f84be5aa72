"""What `qwen3_tiny_onnx_custom_inputs` is traced with, and which graphs it has."""

from __future__ import annotations

from typing import Any

import torch
from transformers.exporters.utils import decompose_for_generation


def sample_inputs(model: Any, tokenizer: Any) -> dict[str, torch.Tensor]:
    """Two prompts of unequal length, padded on the left: equal ones would lose their mask."""
    ids = torch.arange(3, 15).reshape(2, 6)
    mask = torch.ones_like(ids)
    mask[1, :2] = 0
    return {"input_ids": ids, "attention_mask": mask}


def components(
    model: Any, inputs: dict[str, Any]
) -> dict[str, tuple[torch.nn.Module, dict[str, Any]]]:
    """The decode step without the prefill that it makes needless, and the head for scoring."""
    parts = decompose_for_generation(model, inputs, multi_token_decode=True)
    hidden = model.get_input_embeddings()(inputs["input_ids"])
    return {"decode": parts["decode"], "lm_head": (model.lm_head, {"input": hidden})}
