"""Makes a graph with a static cache callable at another batch size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from transformers.cache_utils import StaticLayer


def forget_traced_batch(inputs: Mapping[str, Any]) -> None:
    """Remove `batch_size` from every static cache layer in `inputs`, in place.

    A layer keeps the batch it was allocated for as a plain number beside its tensors, and the
    engine's flattening (transformers 5.24.0) makes each plain number part of the input's tree spec.
    A call at another batch then ends in "Trying to flatten user inputs with exported input tree
    spec" although the graph itself is dynamic. Nothing reads the number once a layer is allocated.
    """
    for value in inputs.values():
        for layer in _static_layers(value):
            vars(layer).pop("batch_size", None)


def _static_layers(value: Any) -> Iterator[StaticLayer]:
    if isinstance(value, StaticLayer):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _static_layers(item)
    elif hasattr(value, "layers") or hasattr(value, "self_attention_cache"):
        for item in vars(value).values():
            yield from _static_layers(item)


@contextmanager
def batch_forgotten() -> Iterator[None]:
    """While the block traces: a static cache that a graph makes has no `batch_size` either.

    It is a SymInt there, and comes out of the graph as a number beside the cache's tensors
    (transformers 5.24.0): a `.pte` would have an output more for each layer.
    """
    original = StaticLayer.lazy_initialization

    def without_batch(self: StaticLayer, *states: Any) -> None:
        original(self, *states)
        vars(self).pop("batch_size", None)

    StaticLayer.lazy_initialization = without_batch
    try:
        yield
    finally:
        StaticLayer.lazy_initialization = original
