"""Numbers that follow from a grid of image patches: what an encoder takes, and where tokens are.

A grid is [images, 3] int64: the patches of each image in time, height and width. `merge` patches
down and across become one vector of the language model. It is what transformers' `vision_utils` and
`get_rope_index` of the Qwen-VL family do for images; frames of a video have rules of their own.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from model_export.runtime.errors import InputError
from model_export.runtime.graph import Array


def patch_positions(grid: NDArray[np.int64], merge: int) -> NDArray[np.int64]:
    """Row and column of each patch [patches, 2], those that become one vector side by side."""
    rows = []
    for time, height, width in grid.tolist():
        places = np.stack(np.meshgrid(np.arange(height), np.arange(width), indexing="ij"), axis=-1)
        blocks = places.reshape(height // merge, merge, width // merge, merge, 2)
        rows.append(np.tile(blocks.transpose(0, 2, 1, 3, 4).reshape(-1, 2), (time, 1)))
    return np.concatenate(rows).astype(np.int64)


def frame_ends(grid: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where each frame's patches end [frames + 1], from 0 on: attention stays inside of a frame."""
    sizes = np.repeat(grid[:, 1] * grid[:, 2], grid[:, 0])
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def vectors_of(grid: NDArray[np.int64], merge: int) -> list[int]:
    """How many vectors each image becomes, and placeholders stand for it."""
    return [int(count) for count in grid.prod(axis=1) // merge**2]


def derived_inputs(grid: NDArray[np.int64], merge: int) -> dict[str, Array]:
    """What an encoder may take beside its patches and their grid, by name."""
    return {
        "cu_seqlens": frame_ends(grid),
        "position_ids": patch_positions(grid, merge),
    }


def prompt_positions(
    ids: NDArray[np.int64],
    mask: NDArray[np.int64],
    grids: Mapping[int, NDArray[np.int64]],
    merge: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Positions [3, batch, tokens] of time, height and width, and what they are ahead of text's.

    `grids` are those of the images by their placeholder. Text counts on in all three; an image's
    vectors have their place in it, and what follows goes on after the longer of its sides. The
    second result [batch, 1] is how far the tokens to come are from the number of real ones.
    """
    positions = np.zeros((3, *ids.shape), np.int64)
    ahead = np.zeros((len(ids), 1), np.int64)
    left = {token: iter(grid.tolist()) for token, grid in grids.items()}
    for row, tokens in enumerate(ids):
        places = np.flatnonzero(mask[row])
        start, position = 0, 0
        while start < len(places):
            token = int(tokens[places[start]])
            if token not in left:
                positions[:, row, places[start]] = position
                start, position = start + 1, position + 1
                continue
            time, height, width = next(left[token], (0, 0, 0))
            shape = (time, height // merge, width // merge)
            inside = np.indices(shape).reshape(3, -1)
            here = places[start : start + inside.shape[1]]
            if not inside.size or bool((tokens[here] != token).any()) or len(here) < len(inside[0]):
                raise InputError(
                    f"Prompt {row} has the placeholder {token} where no image of the right size "
                    "is: each image takes as many as its grid has merged patches."
                )
            positions[:, row, here] = inside + position
            start, position = start + len(here), position + max(shape[1:])
        ahead[row] = positions[:, row, places].max() + 1 - len(places) if len(places) else 0
    return positions, ahead
