"""Which prompts a generating artifact is verified with, within what its graphs take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from model_export.exporter.probe.media_prompts import MediaPrompts
from model_export.exporter.probe.variants import Sizes, resized
from model_export.exporter.samples import pad_token
from model_export.manifest import MultimodalRecord
from model_export.spec import ExportSpec

# A window longer than this isn't crossed: eager attention over it would cost more than the export.
LONGEST_WINDOW = 1024
# Read from the start again for prompts that are longer.
_TEXT = (
    "Water boils at a lower temperature on a mountain than at the sea, because the air above it "
    "presses less. The same is true of the tea that is made with it: it tastes weaker, and it is "
    "cold sooner. Whoever has lived high up for years stops noticing either."
)
_PADDING = 3
# The argument of `forward` that has the cache (transformers 5.24.0).
CACHE_INPUT = "cache"


@dataclass(frozen=True)
class Capacity:
    """The sequences and positions that an artifact of a spec can take; None where it is free.

    `batch` and `length` (of a prompt) are fixed sizes, `most_sequences` and `longest` (prompt and
    new tokens together) are bounds.
    """

    batch: int | None
    length: int | None
    most_sequences: int | None
    longest: int | None

    @classmethod
    def of(
        cls,
        model: PreTrainedModel,
        spec: ExportSpec,
        inputs: Mapping[str, Any],
        components: Sequence[str],
    ) -> Capacity:
        """What `spec` makes of the sizes of `inputs`, those that the graphs are traced with.

        The first of `components` is fed with the prompt, all of them with every sequence.
        """
        main = inputs[model.main_input_name]
        own = [spec.for_component(name) for name in components]
        all_axes = [_dynamic_axes(model.main_input_name, part) for part in own]
        axes = all_axes[0]
        bounds = [spec.dims.get(axes.get(axis) or "") for axis in (0, 1)]
        config = model.config.get_text_config(decoder=True)
        limits = [
            spec.generation_config.get("max_cache_len"),
            getattr(config, "max_position_embeddings", None),
            getattr(config, "max_target_positions", None),
            bounds[1][1] if bounds[1] and not model.config.is_encoder_decoder else None,
            *(limit for part in own for limit in _position_limits(part)),
            # The default bounds of backends/executorch/bounds.py.
            1024 if spec.export_format == "executorch" else None,
        ]
        return cls(
            batch=None if all(0 in axes for axes in all_axes) else int(main.shape[0]),
            length=None if 1 in axes else int(main.shape[1]),
            most_sequences=bounds[0][1] if bounds[0] else None,
            longest=min((limit for limit in limits if limit is not None), default=None),
        )


@dataclass(frozen=True)
class Prompt:
    """The kwargs of one `generate`, how many tokens it adds, and how the prompt is cut for it."""

    name: str
    inputs: Mapping[str, torch.Tensor]
    chunks: tuple[int, ...]
    steps: int


def prompts_for(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None,
    inputs: Mapping[str, Any],
    spec: ExportSpec,
    components: Sequence[str],
    padded: bool,
    multimodal: MultimodalRecord | None = None,
) -> Iterator[Prompt]:
    """A batch of unequal lengths, one sequence in several calls, and a third one after that.

    The first two together cross the model's attention window, if it has one, in a prompt and while
    decoding. `components` are the graphs in the order they run in; `padded` is false for graphs
    that take no mask, where a batch has equal lengths.
    """
    capacity = Capacity.of(model, spec, inputs, components)
    if model.config.is_encoder_decoder:
        yield from _encoder_prompts(model, inputs, spec, capacity)
        return
    if multimodal is not None:
        yield from _media_prompts(MediaPrompts(model, inputs, spec, multimodal), capacity)
        return
    window = attention_window(model)
    lengths = (10, 23, 5)
    if window is not None and window <= LONGEST_WINDOW:
        lengths = (max(10, window - 4), max(23, window + 5), 5)
    names = ("a batch of unequal lengths", "one prompt in chunks", "another prompt after that")
    batches = (2, 1, 3)
    for name, batch, length, steps in zip(names, batches, lengths, (16, 24, 8), strict=True):
        if capacity.longest is not None:
            steps = max(1, min(steps, capacity.longest // 2))
            length = max(1, min(length, capacity.longest - steps))
        length = capacity.length or length
        batch = capacity.batch or min(batch, capacity.most_sequences or batch)
        ids = _tokens(model, tokenizer, batch, length)
        mask = torch.ones_like(ids)
        if padded and length > _PADDING:
            mask[1:, :_PADDING] = 0
            ids[1:, :_PADDING] = pad_token(model)
        whole = "chunks" not in name or capacity.length is not None
        yield Prompt(
            name,
            {"input_ids": ids, "attention_mask": mask},
            (length,) if whole else _chunks(length),
            steps,
        )


def attention_window(model: PreTrainedModel) -> int | None:
    """The positions that a layer with sliding attention sees; None if the model has none."""
    config = model.config.get_text_config(decoder=True)
    window = getattr(config, "sliding_window", None)
    kinds = getattr(config, "layer_types", None)
    if kinds is not None and "sliding_attention" not in kinds:
        return None
    return window if isinstance(window, int) else None


def _encoder_prompts(
    model: PreTrainedModel, inputs: Mapping[str, Any], spec: ExportSpec, capacity: Capacity
) -> Iterator[Prompt]:
    names = ("a batch", "one sequence", "another batch after that")
    start = model.generation_config.decoder_start_token_id
    if start is None:
        start = model.config.decoder_start_token_id
    for name, sizes in zip(names, (Sizes(2, 3), Sizes(1, 9), Sizes(3, -3)), strict=True):
        steps = 16 if capacity.longest is None else min(16, capacity.longest - 1)
        encoded = resized(model, inputs, spec, sizes)
        batch = encoded[model.main_input_name].shape[0]
        encoded["decoder_input_ids"] = torch.full((batch, 1), start, dtype=torch.int64)
        yield Prompt(name, encoded, (1,), steps)


def _media_prompts(media: MediaPrompts, capacity: Capacity) -> Iterator[Prompt]:
    """With images or sound, one sequence and several; then text alone, in chunks."""
    names = ("a batch of unequal lengths", "one prompt", "another batch after that")
    for name, sizes in zip(names, (Sizes(2, 3), Sizes(1, 6), Sizes(3, -2)), strict=True):
        inputs = media.resized(sizes)
        length = inputs["input_ids"].shape[1]
        yield Prompt(name, inputs, (length,), _steps(12, length, capacity))
    if capacity.batch is None and capacity.length is None:
        text = media.text_only(1, 11)
        yield Prompt("text alone, in chunks", text, _chunks(11), _steps(8, 11, capacity))


def _steps(wanted: int, length: int, capacity: Capacity) -> int:
    """`wanted` tokens, or as many as there is room for after `length`."""
    if capacity.longest is None:
        return wanted
    return max(1, min(wanted, capacity.longest - length))


def _dynamic_axes(name: str, spec: ExportSpec) -> dict[int, str | None]:
    """Axis -> name of its dimension (None without one) for the first two axes that may change."""
    given = spec.config.get("dynamic_shapes")
    if given is None:
        return {0: None, 1: None} if spec.config.get("dynamic") else {}
    axes = given.get(name)
    if not isinstance(axes, Mapping):
        return {}
    return {
        int(axis): None if dim == "AUTO" else dim for axis, dim in axes.items() if dim != "STATIC"
    }


def _position_limits(spec: ExportSpec) -> Iterator[int]:
    """The bounds of the positions in the mask and the cache of a decode graph."""
    shapes = spec.config.get("dynamic_shapes") or {}
    for name, axis in (("attention_mask", "1"), (CACHE_INPUT, "2")):
        axes = shapes.get(name)
        if isinstance(axes, Mapping) and axes.get(axis) in spec.dims:
            yield spec.dims[axes[axis]][1]


def _tokens(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None, batch: int, length: int
) -> torch.Tensor:
    """Token ids [batch, length] int64: text, from another word on in each row, or random ids."""
    if tokenizer is not None:
        text = tokenizer(_TEXT, add_special_tokens=False)["input_ids"]
        endless = np.resize(np.asarray(text), length + 7 * batch)
        rows = [endless[7 * row : 7 * row + length] for row in range(batch)]
        return torch.from_numpy(np.stack(rows).astype(np.int64))
    size = model.config.get_text_config(decoder=True).vocab_size
    draw = np.random.Generator(np.random.PCG64([batch, length]))
    return torch.from_numpy(draw.integers(min(10, size // 2), size, size=(batch, length)))


def _chunks(length: int) -> tuple[int, ...]:
    """Three unequal parts of a prompt."""
    first, second = length // 3 or 1, length // 4
    parts = (first, second, length - first - second)
    return tuple(part for part in parts if part > 0)
