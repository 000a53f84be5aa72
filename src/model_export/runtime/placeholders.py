"""Placeholders in a prompt: one for each image or sound becomes one for each of its vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from model_export.manifest import Manifest, MediaRecord
from model_export.runtime.decoders.media import GRID
from model_export.runtime.decoders.vision_grid import vectors_of
from model_export.runtime.graph import Array


def with_placeholders(
    manifest: Manifest, rows: Sequence[list[int]], inputs: Mapping[str, Array]
) -> list[list[int]]:
    """`rows` of token ids with as many placeholders as there are vectors.

    A processor writes that many, a person one for each image. Rows that have another number are
    left as they are, and so are those of an encoder whose vectors can't be counted beforehand.
    """
    expanded = [list(row) for row in rows]
    if manifest.multimodal is None:
        return expanded
    for media in manifest.multimodal.media:
        counts = _counts(manifest, media, inputs)
        if counts is None or sum(row.count(media.token) for row in expanded) != len(counts):
            continue
        left = iter(counts)
        expanded = [
            [
                each
                for token in row
                for each in ([token] * next(left) if token == media.token else [token])
            ]
            for row in expanded
        ]
    return expanded


def _counts(
    manifest: Manifest, media: MediaRecord, inputs: Mapping[str, Array]
) -> list[int] | None:
    """How many vectors each image or sound of `inputs` becomes; None where nothing says so."""
    given = [name for name in media.inputs if name in inputs]
    if not given or manifest.multimodal is None:
        return None
    for name in given:
        if media.inputs[name] == GRID and manifest.multimodal.grid_merge:
            grid = np.asarray(inputs[name], np.int64)
            return vectors_of(grid, manifest.multimodal.grid_merge)
    (encoder,) = (record for record in manifest.components if record.name == media.encoder)
    for tensor in encoder.outputs:
        if tensor.name.removeprefix("output.") == media.output and len(tensor.shape) == 3:
            length = tensor.shape[1]
            return (
                [length - media.skip] * len(inputs[given[0]]) if isinstance(length, int) else None
            )
    return None
