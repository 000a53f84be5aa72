"""Which positions of an output are compared."""

from __future__ import annotations

import numpy as np

from model_export.verifier.padding import real_positions

_MASK = np.array([[1, 1, 1, 1], [0, 0, 1, 1]])


def test_a_mask_over_the_past_as_well_covers_the_new_positions_at_its_end() -> None:
    real = real_positions("logits", (2, 3, 9), "mask", {"mask": _MASK})
    assert real is not None
    assert real.shape == (2, 3, 1)
    assert real[:, :, 0].tolist() == [[True, True, True], [False, True, True]]


def test_a_cache_is_masked_along_its_positions() -> None:
    real = real_positions("cache.layers.0.keys", (2, 5, 4, 8), "mask", {"mask": _MASK})
    assert real is not None
    assert real[:, 0, :, 0].tolist() == [[True] * 4, [False, False, True, True]]


def test_a_window_s_cache_has_the_last_positions() -> None:
    real = real_positions("cache.layers.0.keys", (2, 5, 3, 8), "mask", {"mask": _MASK})
    assert real is not None
    assert real[1, 0, :, 0].tolist() == [False, True, True]


def test_a_static_cache_counts_where_anyone_attends_to_it() -> None:
    # Two new positions of five, the first of them padding in the second sequence.
    mask = np.zeros((2, 1, 2, 5), bool)
    mask[0, 0] = [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0]]
    mask[1, 0] = [[0, 0, 0, 0, 0], [0, 1, 0, 0, 0]]
    masks = {"mask": mask}
    cache = real_positions("cache.layers.0.values", (2, 3, 5, 8), "mask", masks)
    logits = real_positions("logits", (2, 2, 9), "mask", masks)
    assert cache is not None and logits is not None
    assert cache[:, 0, :, 0].tolist() == [[1, 1, 0, 0, 0], [0, 1, 0, 0, 0]]
    assert logits[:, :, 0].tolist() == [[True, True], [False, True]]


def test_outputs_without_positions_count_fully() -> None:
    assert real_positions("pooler_output", (2, 4), "mask", {"mask": _MASK}) is None
    assert (
        real_positions("cache.layers.0.conv_states.0", (2, 4, 3), "mask", {"mask": _MASK}) is None
    )
    assert real_positions("image_features", (2, 50, 8), "mask", {"mask": _MASK}) is None
