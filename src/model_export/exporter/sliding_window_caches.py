"""Caches of layers with a sliding window, kept at full length so that they can be traced.

A layer with a window sees as far back as its mask lets it, and the model makes that mask whatever
the cache holds: a cache of full length computes the same. It costs the memory that cutting to the
window would have saved. Both kinds of upstream's own layers (transformers 5.24.0) can't be traced:

- `StaticSlidingWindowLayer.update` decides by a Python integer whether the window is full. A trace
  bakes that in: the graph is right on one side of that point, and a decode step of several tokens
  fails beyond it.
- `DynamicSlidingWindowLayer` cuts what it keeps to the window. The engine traces it as a layer that
  doesn't, but captures inputs of layers that do, whose lengths then don't fit together.

`tests/exporter/test_sliding_window_caches.py` fails once upstream traces right.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from transformers.cache_utils import (
    DYNAMIC_LAYER_TYPE_MAPPING,
    STATIC_LAYER_TYPE_MAPPING,
    DynamicLayer,
    StaticLayer,
)

_LAYER_TYPE = "sliding_attention"


@contextmanager
def full_length_windows() -> Iterator[None]:
    """Build every cache of this block without windows."""
    own = DYNAMIC_LAYER_TYPE_MAPPING[_LAYER_TYPE], STATIC_LAYER_TYPE_MAPPING[_LAYER_TYPE]

    def growing(sliding_window: int) -> DynamicLayer:
        return DynamicLayer()

    def static(max_cache_len: int, sliding_window: int) -> StaticLayer:
        return StaticLayer(max_cache_len=max_cache_len)

    DYNAMIC_LAYER_TYPE_MAPPING[_LAYER_TYPE] = growing
    STATIC_LAYER_TYPE_MAPPING[_LAYER_TYPE] = static
    try:
        yield
    finally:
        DYNAMIC_LAYER_TYPE_MAPPING[_LAYER_TYPE], STATIC_LAYER_TYPE_MAPPING[_LAYER_TYPE] = own
