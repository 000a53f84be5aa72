"""What follows from grids of patches, against the model's own positions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers.vision_utils import get_vision_cu_seqlens, get_vision_position_ids

from exporter.backends.tiny_multimodal import IMAGE, qwen2_vl_inputs, tiny_qwen2_vl
from model_export.runtime.decoders.vision_grid import (
    derived_inputs,
    prompt_positions,
    vectors_of,
)
from model_export.runtime.errors import InputError

GRIDS = ((1, 4, 4), (1, 2, 8), (2, 6, 4))


def test_what_an_encoder_takes() -> None:
    grid = torch.tensor(GRIDS)
    derived = derived_inputs(grid.numpy(), 2)
    assert derived["position_ids"].tolist() == get_vision_position_ids(grid, 2).tolist()
    assert derived["cu_seqlens"].tolist() == get_vision_cu_seqlens(grid).tolist()
    assert vectors_of(grid.numpy(), 2) == [4, 4, 12]


@pytest.mark.parametrize("grids", [GRIDS, ((1, 2, 2),), ((1, 8, 2), (1, 2, 8))])
def test_positions_in_a_prompt(grids: tuple[tuple[int, int, int], ...]) -> None:
    inputs = qwen2_vl_inputs(grids, length=22)
    expected, ahead = tiny_qwen2_vl().model.get_rope_index(
        inputs["input_ids"],
        mm_token_type_ids=inputs["mm_token_type_ids"],
        image_grid_thw=inputs["image_grid_thw"],
        attention_mask=inputs["attention_mask"],
    )
    positions, offsets = prompt_positions(
        inputs["input_ids"].numpy(),
        inputs["attention_mask"].numpy(),
        {IMAGE: inputs["image_grid_thw"].numpy()},
        2,
    )
    assert positions.tolist() == expected.tolist()
    assert offsets.tolist() == ahead.tolist()


def test_two_images_in_one_prompt() -> None:
    ids = np.array([[7, *[IMAGE] * 4, 8, 9, *[IMAGE] * 2, 10]])
    grid = np.array([[1, 4, 4], [1, 2, 4]])
    expected, ahead = tiny_qwen2_vl().model.get_rope_index(
        torch.from_numpy(ids),
        mm_token_type_ids=torch.from_numpy((ids == IMAGE).astype(np.int32)),
        image_grid_thw=torch.from_numpy(grid),
    )
    positions, offsets = prompt_positions(ids, np.ones_like(ids), {IMAGE: grid}, 2)
    assert positions.tolist() == expected.tolist()
    assert offsets.tolist() == ahead.tolist()


def test_placeholders_without_their_image() -> None:
    ids = np.array([[7, IMAGE, IMAGE, 8]])
    with pytest.raises(InputError, match="Prompt 0 has the placeholder 250 where no image"):
        prompt_positions(ids, np.ones_like(ids), {IMAGE: np.array([[1, 4, 4]])}, 2)
