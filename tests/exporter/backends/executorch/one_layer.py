"""A decoder as small as one can be: lowering costs some twenty seconds a layer."""

from __future__ import annotations

import torch
from transformers import Qwen3ForCausalLM

from exporter.backends.tiny_models import tiny_qwen3


def one_layer_qwen3() -> Qwen3ForCausalLM:
    """`tiny_qwen3` cut to its first layer."""
    config = tiny_qwen3().config
    config.num_hidden_layers = 1
    config.layer_types = ["full_attention"]
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(config).eval()
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0
    return model
