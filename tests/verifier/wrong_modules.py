"""A decoder of one layer, and modules that are wrong in the ways an export can be wrong."""

from __future__ import annotations

from typing import Any

import torch
from transformers import Qwen3ForCausalLM
from transformers.cache_utils import Cache

from exporter.backends.tiny_models import tiny_qwen3

# What a growing cache still has after `forget`.
KEPT = 4


def one_layer_decoder() -> Qwen3ForCausalLM:
    """`tiny_qwen3` with its first layer only: lowering and tracing cost by the layer."""
    config = tiny_qwen3().config
    config.num_hidden_layers = 1
    config.layer_types = ["full_attention"]
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(config).eval()
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0
    return model


def scale_a_weight(module: torch.nn.Module) -> None:
    """One weight tensor is 1 % too large."""
    with torch.no_grad():
        module.get_parameter("model.layers.0.mlp.down_proj.weight").mul_(1.01)


def swap_outputs(module: torch.nn.Module) -> None:
    """Keys come out as values and values as keys."""

    def swap(_: torch.nn.Module, __: Any, output: Any) -> None:
        for layer in _cache(output).layers:
            layer.keys, layer.values = layer.values, layer.keys

    module.register_forward_hook(swap)


def ignore_the_mask(module: torch.nn.Module) -> None:
    """The mask is still an input, but padding is attended to like anything else."""

    def unmask(_: torch.nn.Module, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        return args, {**kwargs, "attention_mask": torch.ones_like(kwargs["attention_mask"])}

    module.register_forward_pre_hook(unmask, with_kwargs=True)


def forget(module: torch.nn.Module) -> None:
    """Of the cache, only the last positions are handed on."""

    def cut(_: torch.nn.Module, __: Any, output: Any) -> None:
        for layer in _cache(output).layers:
            layer.keys = layer.keys[:, :, -KEPT:]
            layer.values = layer.values[:, :, -KEPT:]

    module.register_forward_hook(cut)


def _cache(output: Any) -> Cache:
    (cache,) = (value for value in output.values() if isinstance(value, Cache))
    return cache
