"""Static caches of layers with a sliding window, kept at full length so that they can be traced.

transformers 5.24.0, `StaticSlidingWindowLayer.update` and `get_mask_sizes`: whether the window is
full is decided by a Python integer, which a trace bakes in. The graph is then right on one side of
that point only, and a decode step of several tokens fails beyond it. A full-length layer with the
window in its mask, which the model makes anyway, computes the same and has no such branch; it costs
the memory that the window would have saved.
`tests/exporter/test_sliding_static_cache.py` fails once upstream traces right.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from transformers.cache_utils import STATIC_LAYER_TYPE_MAPPING, StaticLayer

_LAYER_TYPE = "sliding_attention"


@contextmanager
def full_length_windows() -> Iterator[None]:
    """Build every static cache of this block without windows."""
    own = STATIC_LAYER_TYPE_MAPPING[_LAYER_TYPE]

    def full_length(max_cache_len: int, sliding_window: int) -> StaticLayer:
        return StaticLayer(max_cache_len=max_cache_len)

    STATIC_LAYER_TYPE_MAPPING[_LAYER_TYPE] = full_length
    try:
        yield
    finally:
        STATIC_LAYER_TYPE_MAPPING[_LAYER_TYPE] = own
