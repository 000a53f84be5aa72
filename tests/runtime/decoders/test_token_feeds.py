"""Masks and positions against what `generate` hands to a model."""

from __future__ import annotations

import numpy as np
import pytest

from model_export.manifest import ComponentRecord, TensorRecord
from model_export.runtime.decoders.model_config import ModelConfig
from model_export.runtime.decoders.signature import Signature, read_signature
from model_export.runtime.decoders.token_feeds import TokenFeeds
from model_export.runtime.errors import ArtifactError
from runtime.decoders.records import manifest_of

SLOTS = 6


def _signature(*inputs: TensorRecord) -> Signature:
    tokens = TensorRecord("input_ids", "int64", ("batch", "sequence"))
    positions = TensorRecord("position_ids", "int64", ("batch", "sequence"))
    logits = TensorRecord("logits", "float32", ("batch", "sequence", 7))
    record = ComponentRecord("decode", "", (), (tokens, positions, *inputs), (logits,))
    return read_signature(record, manifest_of(record), ModelConfig())


FLAT = _signature(TensorRecord("attention_mask", "int64", ("batch", "total")))
BY_TYPE = _signature(
    TensorRecord("attention_mask.full_attention", "bool", ("batch", 1, "sequence", SLOTS)),
    TensorRecord("attention_mask.sliding_attention", "bool", ("batch", 1, "sequence", SLOTS)),
)
ONE_TYPE = _signature(TensorRecord("attention_mask", "bool", ("batch", 1, "sequence", SLOTS)))


def test_positions_count_real_tokens_and_the_mask_covers_all_so_far() -> None:
    feeds = TokenFeeds(2, 8, None, None)
    mask = np.array([[1, 1, 1], [0, 0, 1]])
    first = feeds.advance(FLAT, np.array([[5, 6, 7], [0, 0, 8]]), mask)
    assert first["input_ids"].tolist() == [[5, 6, 7], [0, 0, 8]]
    assert first["position_ids"].tolist() == [[0, 1, 2], [0, 0, 0]]
    assert first["attention_mask"].tolist() == mask.tolist()
    second = feeds.advance(FLAT, np.array([[1, 2], [3, 4]]), np.ones((2, 2), np.int64))
    assert second["position_ids"].tolist() == [[3, 4], [1, 2]]
    assert second["attention_mask"].tolist() == [[1, 1, 1, 1, 1], [0, 0, 1, 1, 1]]
    assert second["attention_mask"].dtype == np.int64
    assert all(array.flags.c_contiguous for array in second.values())


def test_masks_of_a_static_cache_are_causal_within_the_window() -> None:
    feeds = TokenFeeds(2, SLOTS, SLOTS, 2)
    feeds.advance(BY_TYPE, np.ones((2, 2), np.int64), np.array([[1, 1], [0, 1]]))
    masks = feeds.advance(BY_TYPE, np.ones((2, 2), np.int64), np.ones((2, 2), np.int64))
    full = masks["attention_mask.full_attention"][:, 0].astype(int)
    assert full.tolist() == [
        [[1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 0, 0]],
        [[0, 1, 1, 0, 0, 0], [0, 1, 1, 1, 0, 0]],
    ]
    # A window of two: the position itself and the one before it.
    sliding = masks["attention_mask.sliding_attention"][:, 0].astype(int)
    assert sliding.tolist() == [[[0, 1, 1, 0, 0, 0], [0, 0, 1, 1, 0, 0]]] * 2


@pytest.mark.parametrize(
    ("window", "row"), [(None, [1, 1, 1, 0, 0, 0]), (1, [0, 0, 1, 0, 0, 0])], ids=["full", "one"]
)
def test_a_mask_without_layer_type_slides_if_the_model_has_a_window(
    window: int | None, row: list[int]
) -> None:
    feeds = TokenFeeds(1, SLOTS, SLOTS, window)
    masks = feeds.advance(ONE_TYPE, np.ones((1, 3), np.int64), np.ones((1, 3), np.int64))
    assert masks["attention_mask"][0, 0, -1].astype(int).tolist() == row


def test_a_sliding_mask_needs_a_window() -> None:
    feeds = TokenFeeds(1, SLOTS, SLOTS, None)
    with pytest.raises(ArtifactError, match="needs `sliding_window`"):
        feeds.advance(BY_TYPE, np.ones((1, 1), np.int64), np.ones((1, 1), np.int64))


def test_a_reordered_batch_keeps_its_own_padding() -> None:
    feeds = TokenFeeds(2, 8, None, None)
    feeds.advance(FLAT, np.ones((2, 2), np.int64), np.array([[1, 1], [0, 1]]))
    feeds.reorder(np.array([1, 0, 1]))
    after = feeds.advance(FLAT, np.ones((3, 1), np.int64), np.ones((3, 1), np.int64))
    assert after["attention_mask"].tolist() == [[0, 1, 1], [1, 1, 1], [0, 1, 1]]
    assert after["position_ids"].tolist() == [[1], [2], [1]]
