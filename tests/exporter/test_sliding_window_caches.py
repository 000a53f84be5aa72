"""Caches with windows: the upstream defects, and that full-length ones compute the same."""

from __future__ import annotations

from typing import Any

import torch
from transformers import DynamicCache, StaticCache
from transformers.cache_utils import DynamicSlidingWindowLayer, StaticSlidingWindowLayer
from transformers.exporters.utils import decompose_for_generation

from exporter.backends.tiny_models import generation_spec, left_padded, tiny_gemma3
from model_export.exporter.backend import load_backend
from model_export.exporter.components import build_components
from model_export.exporter.sliding_window_caches import full_length_windows
from model_export.runtime.graphs.saved_program import empty_cache

STATIC = {"cache_implementation": "static", "max_cache_len": 32}


def decode_inputs(**generation_config: Any) -> dict[str, Any]:
    spec = generation_spec("dynamo", {}, generation_config=generation_config)
    (decode,) = build_components(tiny_gemma3(), left_padded(2, 8, 3), spec)
    return decode.inputs


def test_components_are_captured_with_full_length_layers() -> None:
    layers = decode_inputs(**STATIC)["cache"].layers
    assert [layer.max_cache_len for layer in layers] == [32, 32]
    assert not any(isinstance(layer, StaticSlidingWindowLayer) for layer in layers)
    growing = decode_inputs()["cache"].layers
    assert [layer.keys.shape[2] for layer in growing] == [8, 8]
    assert not any(isinstance(layer, DynamicSlidingWindowLayer) for layer in growing)


def test_upstream_still_captures_growing_layers_cut_to_the_window() -> None:
    """transformers 5.24.0: seven of eight positions, where the trace keeps all it is given."""
    model = tiny_gemma3()
    inputs = left_padded(2, 8, 3)
    stages = decompose_for_generation(model, inputs, multi_token_decode=True)
    layers = stages["decode"][1]["cache"].layers
    assert [layer.keys.shape[2] for layer in layers] == [7, 8]


def test_other_caches_keep_their_windows() -> None:
    with full_length_windows():
        pass
    cache = StaticCache(config=tiny_gemma3().config, max_cache_len=32)
    assert isinstance(cache.layers[0], StaticSlidingWindowLayer)
    growing = DynamicCache(config=tiny_gemma3().config)
    assert isinstance(growing.layers[0], DynamicSlidingWindowLayer)


def test_upstream_still_decides_by_a_python_integer() -> None:
    """transformers 5.24.0. If this fails, see whether `full_length_windows` is still needed."""
    layer = StaticSlidingWindowLayer(max_cache_len=32, sliding_window=8)
    states = torch.zeros(1, 1, 3, 4)

    class Update(torch.nn.Module):
        def forward(self, states: torch.Tensor) -> torch.Tensor:
            return layer.update(states, states)[0]

    before = layer.cumulative_length_int
    torch.export.export(Update(), (states,))
    assert layer.cumulative_length_int == before + 3


def test_the_traced_graph_crosses_the_window() -> None:
    """Decoding by the graph from an empty cache, past the window of 8, as eager does."""
    spec = generation_spec("dynamo", {}, generation_config=STATIC)
    model = tiny_gemma3()
    (decode,) = build_components(model, left_padded(2, 8, 3), spec)
    component = load_backend("dynamo").export("decode", decode.module, decode.inputs, spec)
    cache = empty_cache(component.program, 2)
    steps = 12
    ids = left_padded(2, steps, 0, seed=1)["input_ids"]
    with torch.no_grad():
        expected = model(input_ids=ids).logits
    graph = component.program.module()
    for step in range(steps):
        seen = torch.arange(32) <= step
        near = torch.arange(32) > step - 8
        full = seen.expand(2, 1, 1, 32)
        with torch.no_grad():
            output = graph(
                input_ids=ids[:, step : step + 1],
                attention_mask={"full_attention": full, "sliding_attention": full & near},
                position_ids=torch.full((2, 1), step),
                cache=cache,
            )
        torch.testing.assert_close(output.logits[:, 0], expected[:, step], rtol=0, atol=1e-5)
