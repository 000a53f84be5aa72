"""From pixels or sound to the vectors that stand in a prompt."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from model_export.manifest import ComponentRecord, Manifest, MediaRecord
from model_export.runtime.decoders.vision_grid import derived_inputs
from model_export.runtime.errors import ArtifactError, InputError
from model_export.runtime.graph import Array, Graph, numpy_dtype, open_graph, plain_name

# What an encoder calls its grid of patches.
GRID = "grid_thw"


class MediaEncoder:
    """One encoder with its projector, if it has one, and how they fit together."""

    def __init__(
        self, record: MediaRecord, encoder: Graph, projector: Graph | None, merge: int | None
    ) -> None:
        self.record = record
        self._encoder = encoder
        self._projector = projector
        self._merge = merge

    @property
    def token(self) -> int:
        """The id that stands in a prompt for one vector."""
        return self.record.token

    def grid(self, inputs: Mapping[str, Array]) -> NDArray[np.int64] | None:
        """The grid of patches among the arguments of `generate`; None without one."""
        for name, own in self.record.inputs.items():
            if own == GRID and name in inputs:
                grid: NDArray[np.int64] = np.asarray(inputs[name], np.int64)
                return grid
        return None

    def encode(self, inputs: Mapping[str, Array]) -> Array | None:
        """The vectors [all, size] of the arguments of `generate`; None if none are its own.

        Raises InputError if some are missing.
        """
        own = self.record.inputs
        given = {name for name in own if name in inputs}
        if not given:
            return None
        if missing := sorted(set(own) - given):
            raise InputError(f"`{sorted(given)[0]}` comes without {', '.join(missing)}.")
        fed = {own[name]: inputs[name] for name in own}
        grid = self.grid(inputs)
        if grid is not None and self._merge is not None:
            fed = derived_inputs(grid, self._merge) | fed
        output = _run(self._encoder, fed)[self.record.output]
        if self.record.skip:
            output = output[:, self.record.skip :]
        if self._projector is not None:
            (port,) = self._projector.record.inputs
            (output,) = _run(self._projector, {port.name: output}).values()
        return output.reshape(-1, output.shape[-1])


def open_media(folder: Path, manifest: Manifest, device: str) -> tuple[MediaEncoder, ...]:
    """The encoders that a manifest has a rule for. Raises ArtifactError if a graph is missing."""
    assert manifest.multimodal is not None
    records = {record.name: record for record in manifest.components}
    opened = []
    for media in manifest.multimodal.media:
        graphs: list[Graph | None] = []
        for name in (media.encoder, media.projector):
            if name is not None and name not in records:
                raise ArtifactError(
                    f"This artifact has {', '.join(records)} and no `{name}`: name it in "
                    "`components`, or leave that out."
                )
            graphs.append(
                open_graph(folder, manifest.export_format, records[name], device) if name else None
            )
        encoder, projector = graphs
        assert encoder is not None
        merge = manifest.multimodal.grid_merge
        _check_inputs(encoder.record, media, merge)
        opened.append(MediaEncoder(media, encoder, projector, merge))
    return tuple(opened)


def _check_inputs(record: ComponentRecord, media: MediaRecord, merge: int | None) -> None:
    known = set(media.inputs.values())
    if merge is not None and GRID in known:
        known |= derived_inputs(np.ones((1, 3), np.int64) * merge, merge).keys()
    for tensor in record.inputs:
        if tensor.name not in known:
            raise ArtifactError(
                f"`{record.name}` takes `{tensor.name}`, which this runtime doesn't know how to "
                "fill."
            )


def _run(graph: Graph, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """One call with those of `inputs` that the graph takes; outputs by their plain names."""
    fed = {
        tensor.name: np.ascontiguousarray(inputs[tensor.name], numpy_dtype(tensor.dtype))
        for tensor in graph.record.inputs
    }
    return {plain_name(name): array for name, array in graph.run(fed).items()}
