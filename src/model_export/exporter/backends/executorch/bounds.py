"""Gives every dynamic dimension an upper bound: ExecuTorch plans its memory for the largest size.

Left to itself the engine (transformers 5.24.0, `_fix_range_constraints`) caps each dimension at
four times the traced size or at a floor of 64 to 1024, the lower the more dimensions there are: a
decoder traced on eight tokens would refuse the 65th. It says so in a log line only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.export.dynamic_shapes import Dim, _DimHint, _DimHintType
from torch.utils import _pytree as pytree
from transformers.cache_utils import StaticLayer

# A phone generates for one user and embeds a few sentences; each further row costs arena.
MAX_BATCH = 4
# The arena grows with the sequence's square (attention scores) and with tokens x vocabulary.
MAX_SEQUENCE = 1024
# Images, spectrograms and what else isn't tokens: their sizes say nothing about a model's limits.
OTHER_GROWTH = 4
# What says where each image ends among patches that lie in a row.
_PACKED = "cu_seqlens"
# Floats with a vector for each token: what a language model takes whose prompt has images.
_TOKEN_VECTORS = ("inputs_embeds",)


@dataclass(frozen=True)
class DefaultBounds:
    """The largest sizes of dimensions that nobody bounded.

    `sequence` counts tokens, those in the cache included; `fixed` are sizes that can't grow at all
    (the length of a static cache, which is its bound whatever the model could do).
    """

    batch: int
    traced_batch: int
    sequence: int
    fixed: frozenset[int]

    @classmethod
    def of(cls, module: torch.nn.Module, inputs: Mapping[str, Any]) -> DefaultBounds:
        """Bounds by what the model's config and the traced inputs say."""
        tensors = [leaf for leaf in pytree.tree_leaves(dict(inputs)) if _has_axes(leaf)]
        traced_batch = tensors[0].shape[0] if tensors else 1
        lengths = _static_cache_lengths(inputs)
        limit = max(lengths) if lengths else min(_model_limit(module), MAX_SEQUENCE)
        # Patches of images, one after the other, are no batch.
        growth = OTHER_GROWTH if _PACKED in inputs else 1
        return cls(
            max(MAX_BATCH, growth * traced_batch),
            traced_batch,
            max([limit, *(tensor.shape[1] for tensor in tensors if _is_tokens(tensor))]),
            frozenset(lengths),
        )

    def upper(self, tensor: torch.Tensor, axis: int, token_like: bool) -> int:
        """The largest size of an axis of an input, given the input at its traced size."""
        size = tensor.shape[axis]
        if size in self.fixed and axis > 0:
            return size
        if axis == 0 and size == self.traced_batch:
            return self.batch
        if token_like or not tensor.is_floating_point():
            return max(self.sequence, size)
        return OTHER_GROWTH * size


def bound_every_dimension(shapes: Any, inputs: Mapping[str, Any], bounds: DefaultBounds) -> Any:
    """`shapes` of `inputs`, with an upper bound on each dimension.

    A named dimension or hint that has an upper bound keeps it. One named dimension gets one bound:
    the largest of the places it is used in.
    """
    named = _named_bounds(shapes, inputs, bounds)
    replaced = {
        name: dim if _is_bounded(dim) else Dim(name, min=dim.min, max=largest)
        for name, (dim, largest) in named.items()
    }

    def bound(dim: Any, tensor: torch.Tensor, axis: int, token_like: bool) -> Any:
        if isinstance(dim, Dim):
            return replaced[dim.__name__]
        if isinstance(dim, _DimHint) and dim.type != _DimHintType.STATIC and dim.max is None:
            upper = bounds.upper(tensor, axis, token_like)
            hint = Dim.AUTO if dim.type == _DimHintType.AUTO else Dim.DYNAMIC
            return hint(min=dim.min, max=upper)
        return dim

    return {
        name: _map_axes(shapes.get(name), value, bound, name in _TOKEN_VECTORS)
        for name, value in inputs.items()
    }


def has_given_bounds(shapes: Any) -> bool:
    """Whether anything in `shapes` has an upper bound of its own."""
    dims = pytree.tree_leaves(shapes, is_leaf=lambda leaf: isinstance(leaf, (Dim, _DimHint)))
    return any(
        (isinstance(dim, Dim) and _is_bounded(dim))
        or (isinstance(dim, _DimHint) and dim.max is not None)
        for dim in dims
    )


def _named_bounds(
    shapes: Any, inputs: Mapping[str, Any], bounds: DefaultBounds
) -> dict[str, tuple[Dim, int]]:
    named: dict[str, tuple[Dim, int]] = {}

    def collect(dim: Any, tensor: torch.Tensor, axis: int, token_like: bool) -> Any:
        if isinstance(dim, Dim):
            upper = bounds.upper(tensor, axis, token_like)
            known = named.get(dim.__name__, (dim, upper))
            named[dim.__name__] = (dim, max(known[1], upper))
        return dim

    for name, value in inputs.items():
        _map_axes(shapes.get(name), value, collect, name in _TOKEN_VECTORS)
    return named


def _map_axes(shapes: Any, value: Any, change: Any, token_like: bool) -> Any:
    """`change(dimension, tensor, axis, token_like)` at every axis of `shapes` beside `value`.

    `token_like` is true of what has a place for each token: caches, and vectors of tokens.
    """
    if shapes is None:
        return None
    if isinstance(value, torch.Tensor):
        axes = shapes.items() if isinstance(shapes, Mapping) else enumerate(shapes)
        return {axis: change(dim, value, axis, token_like) for axis, dim in axes}
    if isinstance(shapes, Mapping):
        return {
            key: _map_axes(item, value[key], change, token_like) for key, item in shapes.items()
        }
    children = pytree.SUPPORTED_NODES[type(value)].flatten_fn(value)[0]
    cached = token_like or type(value) not in (list, tuple)
    pairs = zip(shapes, children, strict=True)
    return type(shapes)(_map_axes(item, child, change, cached) for item, child in pairs)


def _is_bounded(dim: Dim) -> bool:
    return dim.max is not None and dim.max < torch.iinfo(torch.int32).max


def _has_axes(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.dim() > 0


def _is_tokens(tensor: torch.Tensor) -> bool:
    return tensor.dim() == 2 and not tensor.is_floating_point()


def _model_limit(module: torch.nn.Module) -> int:
    """`max_position_embeddings` of the model's text part, or MAX_SEQUENCE where it has none."""
    config = getattr(module, "config", None)
    if config is None:
        return MAX_SEQUENCE
    text = config.get_text_config()
    return int(getattr(text, "max_position_embeddings", None) or MAX_SEQUENCE)


def _static_cache_lengths(value: Any) -> set[int]:
    if isinstance(value, StaticLayer):
        return {int(value.max_cache_len)}
    if isinstance(value, Mapping):
        value = list(value.values())
    elif hasattr(value, "layers") or hasattr(value, "self_attention_cache"):
        value = list(vars(value).values())
    if isinstance(value, (list, tuple)):
        return set().union(*map(_static_cache_lengths, value))
    return set()
