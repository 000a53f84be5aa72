"""Greedy generations of the eager model: tokens, the logits behind them, the cache's shapes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from transformers import GenerationConfig, GenerationMixin, PreTrainedModel, PreTrainedTokenizerBase
from transformers.exporters.utils import get_leaf_tensors

from model_export.exporter.components import (
    capture_components,
    capture_generation_config,
    generating_with,
    is_recurrent,
)
from model_export.exporter.custom_inputs import has_custom_components
from model_export.exporter.mapped_weights import released_weights
from model_export.exporter.probe.prompts import CACHE_INPUT, attention_window, prompts_for
from model_export.exporter.probe.tensors import ProbeTensors
from model_export.exporter.sliding_window_caches import full_length_windows
from model_export.manifest import MultimodalRecord
from model_export.probe import GenerationCase, GraphCase
from model_export.spec import ExportSpec

# What `generate` may keep of the model's own settings; all others change what is chosen.
_KEPT_SETTINGS = (
    "bos_token_id",
    "cache_config",
    "cache_implementation",
    "decoder_start_token_id",
    "max_cache_len",
    "pad_token_id",
)
# The graphs of a decoder's generation loop.
_STAGES = ("prefill", "decode")


@dataclass(frozen=True)
class _Eager:
    tokens: torch.Tensor
    logits: torch.Tensor
    cache_shapes: dict[str, tuple[tuple[int, ...], ...]]


def record_generation_cases(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None,
    inputs: Mapping[str, Any],
    spec: ExportSpec,
    graphs: Sequence[GraphCase],
    tensors: ProbeTensors,
    multimodal: MultimodalRecord | None = None,
) -> Iterator[GenerationCase]:
    """What the eager model generates greedily for several prompts (see `prompts_for`).

    `inputs` are the sample inputs that the graphs were traced with, `graphs` the calls of these.
    None if the graphs aren't enough to generate with.
    """
    traced = {case.component: case for case in graphs if case.traced}
    if has_custom_components(spec):
        # What else a target adds has no part in a generation.
        traced = {name: case for name, case in traced.items() if name in _STAGES}
    if not _complete(model, spec, tuple(traced), multimodal):
        return
    if not _takes_prompts(model, inputs, spec):
        return
    if multimodal is not None and tuple(traced) == ("decode",):
        # Without the graphs that put images into a prompt it takes text.
        multimodal = replace(multimodal, media=())
    padded = "prefill" in traced or any(
        name.startswith("attention_mask") for name in traced["decode"].inputs
    )
    for prompt in prompts_for(model, tokenizer, inputs, spec, tuple(traced), padded, multimodal):
        eager = _generate(model, prompt.inputs, prompt.steps, spec)
        shapes = eager.cache_shapes
        if spec.has_static_cache:
            shapes = _fixed_shapes(traced["decode"], tensors, prompt.steps)
        elif attention_window(model) is not None:
            # Graphs keep such caches at full length.
            with full_length_windows():
                shapes = _generate(model, prompt.inputs, prompt.steps, spec).cache_shapes
        yield GenerationCase(
            prompt.name,
            tensors.add(dict(prompt.inputs)),
            prompt.chunks,
            tensors.add({"tokens": eager.tokens})["tokens"],
            tensors.add({"logits": eager.logits})["logits"],
            shapes,
        )


def _fixed_shapes(
    decode: GraphCase, tensors: ProbeTensors, steps: int
) -> dict[str, tuple[tuple[int, ...], ...]]:
    """The shapes that a static cache has all the time, batch left out."""
    shapes = {name: tensors.shape(key) for name, key in decode.inputs.items()}
    return {
        name: (shape[1:],) * steps
        for name, shape in shapes.items()
        if name.startswith(f"{CACHE_INPUT}.") and shape
    }


def _complete(
    model: PreTrainedModel,
    spec: ExportSpec,
    components: tuple[str, ...],
    multimodal: MultimodalRecord | None,
) -> bool:
    """Whether a loop over `components` takes a prompt and any number of tokens after it."""
    grows = spec.for_component("decode").is_dynamic
    if not grows and (spec.multi_token_decode or not spec.has_static_cache):
        return False
    if multimodal is not None and components != ("decode",):
        needed = {"embed_tokens", "language_model", "lm_head", "decode"}
        for media in multimodal.media:
            needed |= {name for name in (media.encoder, media.projector) if name}
        return needed <= set(components)
    if model.config.is_encoder_decoder:
        return {"encoder", "prefill", "decode"} == set(components)
    if components == ("decode",):
        # One token at a time, a recurrent model starts from states of zero.
        return spec.multi_token_decode or is_recurrent(model)
    return components == ("prefill", "decode") and not spec.multi_token_decode


def _takes_prompts(model: PreTrainedModel, inputs: Mapping[str, Any], spec: ExportSpec) -> bool:
    """Whether the graphs are those of the model's own `generate`, on inputs that can be resized.

    A target's own file may replace a component by another module, which does what it says and not
    what the model does.
    """
    if not isinstance(inputs.get(model.main_input_name), torch.Tensor):
        return False
    if not has_custom_components(spec):
        return True
    parts = capture_components(model, dict(inputs), spec)
    return all(_is_model(part.module, model) for part in parts if part.name in _STAGES)


def _is_model(module: torch.nn.Module, model: PreTrainedModel) -> bool:
    """Whether a stage of a decomposition is the model, or a copy of it on the same weights."""
    weights = [
        [(name, tensor.data_ptr()) for name, tensor in item.state_dict().items()]
        for item in (module, model)
    ]
    return type(module) is type(model) and weights[0] == weights[1]


def _generate(
    model: PreTrainedModel, inputs: Mapping[str, torch.Tensor], steps: int, spec: ExportSpec
) -> _Eager:
    config = _bare_config(model, spec)
    config.max_new_tokens = steps
    config.output_logits = True
    config.return_dict_in_generate = True
    with generating_with(model, config), released_weights(model), _cache_shapes(model) as shapes:
        # Whisper's own `generate` adds prompts and timestamps of its own to what the graphs do.
        output = GenerationMixin.generate(model, **inputs, generation_config=config)
    return _Eager(
        output.sequences[:, -steps:],
        torch.stack(output.logits, dim=1).float(),
        {name: tuple(over_steps) for name, over_steps in shapes.items()},
    )


def _bare_config(model: PreTrainedModel, spec: ExportSpec) -> GenerationConfig:
    """A config without sampling, penalties, forced or forbidden tokens, or an end."""
    own = capture_generation_config(model, spec)
    return GenerationConfig(
        do_sample=False,
        num_beams=1,
        **{
            name: value
            for name in _KEPT_SETTINGS
            if (value := getattr(own, name, None)) is not None
        },
    )


@contextmanager
def _cache_shapes(model: PreTrainedModel) -> Iterator[dict[str, list[tuple[int, ...]]]]:
    """The shapes of the cache after every forward pass of the block, batch left out, by name."""
    shapes: dict[str, list[tuple[int, ...]]] = {}

    def keep(_: torch.nn.Module, __: object, output: Any) -> None:
        for name, tensor in get_leaf_tensors(output).items():
            if name.startswith(f"{CACHE_INPUT}.") and tensor.ndim > 0:
                shapes.setdefault(name, []).append(tuple(tensor.shape[1:]))

    handle = model.register_forward_hook(keep)
    try:
        yield shapes
    finally:
        handle.remove()
