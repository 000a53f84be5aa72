"""What a checkpoint's settings make of a request, and requests that can't be met."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from model_export.manifest import CheckpointRecord, Manifest
from model_export.runtime.artifact import Artifact
from model_export.runtime.errors import ArtifactError, InputError
from model_export.runtime.preparation import decoder_start, room_for, sampling_for
from model_export.runtime.prompts import TokenBatch, padded, token_rows, unpadded
from model_export.runtime.sampling import Sampling


def _artifact(
    config: dict[str, Any] | None = None,
    generation_config: dict[str, Any] | None = None,
    max_cache_len: int | None = None,
) -> Artifact:
    spec = {"for_generation": True, "generation_config": {"max_cache_len": max_cache_len}}
    manifest = Manifest("onnx", CheckpointRecord("local", "x", ()), spec, {}, {}, (), ())
    return Artifact(Path("here"), manifest, config or {}, generation_config or {})


def _prompt(length: int) -> TokenBatch:
    return padded([[1] * length], 0, left=True)


def test_prompts_of_unequal_length() -> None:
    left = padded([[5], [6, 7, 8]], 9, left=True)
    assert left.ids.tolist() == [[9, 9, 5], [6, 7, 8]]
    assert left.mask.tolist() == [[0, 0, 1], [1, 1, 1]]
    assert left.real(0).tolist() == [5]
    right = padded([[5], [6, 7, 8]], 9, left=False)
    assert right.ids.tolist() == [[5, 9, 9], [6, 7, 8]]
    assert right.ids.dtype == right.mask.dtype == np.int64
    assert unpadded(left.ids, left.mask) == unpadded(right.ids, right.mask) == [[5], [6, 7, 8]]


@pytest.mark.parametrize(
    "prompts",
    [[1, 2], [[1, 2]], np.array([1, 2]), np.array([[1, 2]]), [np.array([1, 2])]],
    ids=["ids", "several", "array", "matrix", "arrays"],
)
def test_prompts_that_are_ids(prompts: Any) -> None:
    assert token_rows(prompts, None) == [[1, 2]]


@pytest.mark.parametrize("prompts", [[], [[]], [[1], []]], ids=str)
def test_no_prompt(prompts: Any) -> None:
    with pytest.raises(InputError, match="give at least one"):
        token_rows(prompts, None)


def test_the_checkpoints_own_sampling_holds_unless_another_is_given() -> None:
    own = {"do_sample": True, "temperature": 0.6, "top_k": 20, "top_p": 0.95}
    artifact = _artifact(generation_config={**own, "repetition_penalty": 1.1})
    assert sampling_for(artifact, {}) == Sampling(0.0, 20, 0.95, 1.1)
    given = sampling_for(
        artifact, {"temperature": 1.0, "top_k": 5, "top_p": 1.0, "repetition_penalty": 1.0}
    )
    assert given == Sampling(1.0, 5, 1.0, 1.0)
    assert sampling_for(_artifact(generation_config={"top_k": 0}), {}) == Sampling()


def test_no_more_tokens_than_there_are_positions() -> None:
    """The last token is chosen and never fed: 10 positions hold 7 tokens and 3 of 4 new ones."""
    assert room_for(_artifact({"max_position_embeddings": 10}), _prompt(7), 100) == 4
    assert room_for(_artifact({"max_position_embeddings": 10}), _prompt(7), 2) == 2
    assert (
        room_for(_artifact({"max_position_embeddings": 10}, max_cache_len=8), _prompt(7), 100) == 2
    )
    assert room_for(_artifact({"text_config": {"max_position_embeddings": 9}}), _prompt(9), 5) == 1
    whisper = {"max_target_positions": 448, "max_source_positions": 1500}
    assert room_for(_artifact(whisper), _prompt(4), 1000) == 445
    assert room_for(_artifact(), _prompt(7), 1000) == 1000
    with pytest.raises(InputError, match="has 11 tokens, and here has room for 10: shorten"):
        room_for(_artifact({"max_position_embeddings": 10}), _prompt(11), 1)


@pytest.mark.parametrize(
    ("generation_config", "expected"),
    [
        ({"decoder_start_token_id": 0}, [0]),
        ({"bos_token_id": 2}, [2]),
        ({"decoder_start_token_id": 50257, "forced_decoder_ids": [[1, 50362]]}, [50257, 50362]),
        # A language to detect comes first: nothing can be forced after it.
        ({"decoder_start_token_id": 7, "forced_decoder_ids": [[1, None], [2, 50359]]}, [7]),
    ],
    ids=["t5", "bos", "whisper-english", "whisper-any"],
)
def test_what_a_decoder_starts_from(generation_config: dict[str, Any], expected: list[int]) -> None:
    assert decoder_start(_artifact(generation_config=generation_config)) == expected


def test_a_decoder_without_start() -> None:
    with pytest.raises(ArtifactError, match="decoder_start_token_id: pass `decoder_input_ids=`"):
        decoder_start(_artifact())
