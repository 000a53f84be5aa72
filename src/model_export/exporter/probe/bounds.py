"""Calls of single components at the bounds of the target's dimensions.

All at their lower ends (a size of 1 is one that torch.export likes to take for a constant), all at
their upper ones. Upper sizes that would take too much time and memory are halved until they don't;
each dimension that this was done to is then tried by itself. A case's name says its sizes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer
from transformers.exporters.utils import get_leaf_tensors

from model_export.exporter.components import Component, capture_components
from model_export.exporter.custom_inputs import has_custom_components
from model_export.exporter.dynamic_shapes import build_dynamic_shapes
from model_export.exporter.errors import ExportError, summary
from model_export.exporter.output_flags import split_flags
from model_export.exporter.probe.prompts import CACHE_INPUT
from model_export.exporter.probe.variants import at_named_sizes, of_batch_and_length
from model_export.spec import ExportSpec

# Of activations: 128 MiB in float32.
MOST_ELEMENTS = 1 << 25
# `generate` drops a mask without padding, and one position can't be half padded.
_SHORTEST = 2
# Of a decoder: what has one value for each new token, besides the mask, which has one for all.
_PER_TOKEN = ("input_ids", "position_ids")


@dataclass(frozen=True)
class _Dimensions:
    """A component's bounded dimensions, and what the usual ones of them count.

    `axes` has the target's names by tensor and axis, `traced` the size of each dimension in the
    call that is traced.
    """

    axes: Mapping[str, Mapping[int, str]]
    bounds: Mapping[str, tuple[int, int]]
    traced: Mapping[str, int]
    batch: str | None
    queries: str | None
    past: str | None


def cases_at_bounds(
    model: PreTrainedModel, inputs: Mapping[str, Any], spec: ExportSpec, traced: Component
) -> Iterator[tuple[str, Component]]:
    """The component `traced` with the inputs of calls at its bounds, each with what to call it.

    `inputs` are the sample inputs. Nothing for a component whose dimensions have no bounds.
    """
    dimensions = _dimensions(spec, traced)
    seen = [dict(dimensions.traced)]
    for end, bound, wanted in _ends(model, dimensions, traced):
        shown = ", ".join(f"{name} {size}" for name, size in wanted.items())
        with dims_blamed(f"{end}: {shown}"):
            made = _made(model, inputs, spec, traced, dimensions, wanted)
        sizes = _sizes(dimensions.axes, spec, made)
        if sizes in seen:
            continue
        seen.append(sizes)
        listed = [
            f"{name} {size}" if size == bound[name] else f"{name} {size} (not {bound[name]})"
            for name, size in sizes.items()
        ]
        yield f"{end}: {', '.join(listed)}", made


@contextmanager
def dims_blamed(case: str) -> Iterator[None]:
    """Turn what the eager model raises at a bound into an error of that bound."""
    try:
        yield
    except ExportError:
        raise
    except Exception as error:  # models raise anything for sizes that they aren't made for
        raise ExportError(
            "dims",
            f"has bounds that the model itself fails at ({case}): {summary(error)}",
            "Write bounds that it takes",
        ) from error


def _named_axes(spec: ExportSpec, component: Component) -> Mapping[str, Mapping[int, str]]:
    own = spec.for_component(component.name)
    tensors, _ = split_flags(component.module, dict(component.inputs))
    return build_dynamic_shapes(component.module, tensors, own).names


def _sizes(
    named: Mapping[str, Mapping[int, str]], spec: ExportSpec, component: Component
) -> dict[str, int]:
    """The size of each bounded dimension in a call."""
    leaves = get_leaf_tensors(dict(component.inputs))
    return {
        dim: leaves[leaf].shape[axis]
        for leaf, axes in named.items()
        for axis, dim in axes.items()
        if dim in spec.dims
    }


def _dimensions(spec: ExportSpec, component: Component) -> _Dimensions:
    named = _named_axes(spec, component)
    traced = _sizes(named, spec, component)

    def bounded(dim: str | None) -> str | None:
        return dim if dim in traced else None

    caches = [axes for leaf, axes in named.items() if leaf.startswith(f"{CACHE_INPUT}.")]
    return _Dimensions(
        axes=named,
        bounds={dim: spec.dims[dim] for dim in traced},
        traced=traced,
        batch=bounded(next((axes[0] for axes in named.values() if 0 in axes), None)),
        queries=bounded(named.get("input_ids", {}).get(1)),
        past=bounded(next((axes[2] for axes in caches if 2 in axes), None)),
    )


def _ends(
    model: PreTrainedModel, dimensions: _Dimensions, traced: Component
) -> Iterator[tuple[str, dict[str, int], dict[str, int]]]:
    """What to try, as a name, the bounds and the sizes: all lower, all upper, single upper ones."""
    if not dimensions.bounds:
        return
    lower = {dim: low for dim, (low, _) in dimensions.bounds.items()}
    if dimensions.batch is not None:
        lower[dimensions.batch] = max(1, lower[dimensions.batch])
    if dimensions.queries is not None:
        lower[dimensions.queries] = max(1, lower[dimensions.queries])
    upper = {dim: high for dim, (_, high) in dimensions.bounds.items()}
    together = _affordable(model, dimensions, traced, lower, upper)
    yield "lower bounds", lower, lower
    yield "upper bounds", upper, together
    for dim, high in upper.items():
        if together[dim] < high:
            bound = {**lower, dim: high}
            alone = _affordable(model, dimensions, traced, lower, bound)
            yield f"upper bound of {dim}", bound, alone


def _affordable(
    model: PreTrainedModel,
    dimensions: _Dimensions,
    traced: Component,
    lower: Mapping[str, int],
    sizes: Mapping[str, int],
) -> dict[str, int]:
    """`sizes`, of which the largest is halved until a call takes at most MOST_ELEMENTS."""
    found = dict(sizes)
    while _elements(model, dimensions, traced, found) > MOST_ELEMENTS:
        largest = max(found, key=lambda dim: found[dim] if found[dim] > lower[dim] else 0)
        if found[largest] <= lower[largest]:
            break
        found[largest] = max(lower[largest], found[largest] // 2)
    return found


def _elements(
    model: PreTrainedModel, dimensions: _Dimensions, traced: Component, sizes: Mapping[str, int]
) -> int:
    """About as many as the largest activations have: inputs, attention scores and logits."""
    grown = 1.0
    for dim, size in sizes.items():
        grown *= size / max(1, dimensions.traced[dim])
    inputs = max(leaf.numel() for leaf in get_leaf_tensors(dict(traced.inputs)).values())
    config = model.config.get_text_config(decoder=True)
    batch = sizes.get(dimensions.batch or "", 1)
    queries = sizes.get(dimensions.queries or "", 1)
    past = sizes.get(dimensions.past or "", 0)
    heads = getattr(config, "num_attention_heads", None) or 1
    # The prompt that fills the cache has scores as well.
    scores = batch * heads * max(queries * (past + queries), past * past)
    width = config.vocab_size if model.get_output_embeddings() is not None else config.hidden_size
    return max(int(inputs * grown), scores, batch * queries * width)


def _made(
    model: PreTrainedModel,
    inputs: Mapping[str, Any],
    spec: ExportSpec,
    traced: Component,
    dimensions: _Dimensions,
    wanted: Mapping[str, int],
) -> Component:
    """The component with the inputs of a call at `wanted` sizes, as far as they can be had."""
    own = spec.for_component(traced.name)
    if not spec.for_generation and not has_custom_components(spec):
        sample = at_named_sizes(model, inputs, own, wanted)
        (made,) = capture_components(model, sample, spec)
        return made
    batch = wanted.get(dimensions.batch or "")
    queries, past = (wanted.get(dim or "") for dim in (dimensions.queries, dimensions.past))
    prompt = past if _has_cache(traced) else queries
    length = None if prompt is None else max(_SHORTEST, prompt)
    sample = of_batch_and_length(model, inputs, batch, length)
    (made,) = (part for part in capture_components(model, sample, spec) if part.name == traced.name)
    kwargs = dict(made.inputs)
    if past is not None:
        _shorten_past(kwargs, past)
    if queries is not None:
        _change_queries(kwargs, queries, _has_cache(traced))
    return Component(made.name, made.module, kwargs)


def _has_cache(component: Component) -> bool:
    return any(
        leaf.startswith(f"{CACHE_INPUT}.") for leaf in get_leaf_tensors(dict(component.inputs))
    )


def _shorten_past(kwargs: dict[str, Any], past: int) -> None:
    cache, mask = kwargs.get(CACHE_INPUT), kwargs.get("attention_mask")
    if not isinstance(cache, DynamicCache) or not _is_flat(mask):
        return
    surplus = cache.get_seq_length() - past
    if surplus <= 0 or not all(type(layer) is DynamicLayer for layer in cache.layers):
        return
    for layer in cache.layers:
        layer.keys, layer.values = layer.keys[..., :past, :], layer.values[..., :past, :]
    if mask is not None:
        kwargs["attention_mask"] = mask[:, surplus:]


def _change_queries(kwargs: dict[str, Any], queries: int, has_past: bool) -> None:
    """Cut or repeat the new tokens of a call; nothing is cached yet where it has no past."""
    ids, mask = kwargs.get("input_ids"), kwargs.get("attention_mask")
    if not isinstance(ids, torch.Tensor) or not _is_flat(mask):
        return
    more = queries - ids.shape[1]
    for name in _PER_TOKEN:
        if name in kwargs:
            kwargs[name] = _cut(kwargs[name], more, not has_past) if more < 0 else kwargs[name]
    if mask is not None and more < 0:
        kwargs["attention_mask"] = _cut(mask, more, not has_past)
    if more <= 0:
        return
    kwargs["input_ids"] = ids[:, torch.arange(queries) % ids.shape[1]]
    if "position_ids" in kwargs:
        positions = kwargs["position_ids"]
        following = positions[..., -1:] + torch.arange(1, more + 1, dtype=positions.dtype)
        kwargs["position_ids"] = torch.cat([positions, following], dim=-1)
    if mask is not None:
        kwargs["attention_mask"] = torch.cat([mask, mask.new_ones(len(mask), more)], dim=1)


def _cut(tensor: torch.Tensor, more: int, from_the_left: bool) -> torch.Tensor:
    """Without `-more` positions: the padded ones of a prompt, the last ones of what follows."""
    return tensor[..., -more:] if from_the_left else tensor[..., :more]


def _is_flat(mask: object) -> bool:
    """Whether a mask, if there is one, has a value for each position so far."""
    return mask is None or (isinstance(mask, torch.Tensor) and mask.ndim == 2)
