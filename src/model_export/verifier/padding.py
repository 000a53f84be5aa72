"""Which positions of an output say something: those that aren't padding.

A padded query of a causal model attends to nothing, and what a runtime makes of a softmax over
nothing (zeros, a mean, NaN) is its own business: no real position ever reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from model_export.runtime.graph import Array

_CACHE = "cache."


def real_positions(
    name: str, shape: tuple[int, ...], padding: str, masks: Mapping[str, Array]
) -> NDArray[np.bool_] | None:
    """What counts of the output `name`: an array that broadcasts to `shape`, or None for all.

    `padding` names the mask among `masks`: [batch, positions] with 0 at padding, or the mask of a
    static cache, bool [batch, 1, new positions, positions]. Where layers have masks of their own
    (`attention_mask.sliding_attention`), a cache goes by the one of its length.

    A cache tensor [batch, heads, positions, size] counts where a key is real, which leaves out what
    a static cache holds beyond its filled length; any other output of at least three axes goes by
    its second axis. Outputs without an axis of positions (a pooled vector, a state) count fully.
    """
    main = masks[padding]
    if name.startswith(_CACHE):
        if len(shape) != 4:
            return None
        keys = _keys(_fitting(shape[2], main, masks.values()))
        return None if keys.shape[1] < shape[2] else keys[:, None, -shape[2] :, None]
    if len(shape) < 3:
        return None
    queries = main.astype(bool) if main.ndim == 2 else main[:, 0].any(-1)
    if queries.shape[1] < shape[1]:
        return None
    real = queries[:, -shape[1] :]
    return real.reshape(*real.shape, *(1,) * (len(shape) - 2))


def _fitting(length: int, main: Array, masks: Iterable[Array]) -> Array:
    """The mask over as many positions as the cache has; `main` where none is, or where it is."""
    if main.shape[-1] == length:
        return main
    fitting = [mask for mask in masks if mask.ndim == 4 and mask.shape[-1] == length]
    return fitting[0] if fitting else main


def _keys(mask: Array) -> NDArray[np.bool_]:
    """[batch, positions]: what a mask lets anyone attend to."""
    return mask.astype(bool) if mask.ndim == 2 else np.asarray(mask[:, 0].any(1), bool)
