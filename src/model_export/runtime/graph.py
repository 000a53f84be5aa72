"""What every backend's graph offers: named numpy arrays in, named numpy arrays out."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from model_export.manifest import ComponentRecord
from model_export.runtime.errors import ArtifactError

Array: TypeAlias = "NDArray[Any]"


class Graph(Protocol):
    """One component of an artifact, loaded in its runtime.

    Names are those of the manifest's record. bfloat16 tensors come and go as float32 arrays, which
    hold their values exactly. A cache that the runtime keeps as its own state (OpenVINO) is fed and
    returned under the names that the same graph has without state (`input.cache...`,
    `output.cache...`).
    """

    record: ComponentRecord

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """One call; arrays that the caller may keep. Raises InputError for what doesn't fit."""
        ...


# Where each format's runtime can put a graph.
_DEVICES = {
    "dynamo": ("cpu", "cuda"),
    "executorch": ("cpu",),
    "onnx": ("cpu", "cuda"),
    "openvino": ("cpu",),
}


def open_graph(
    folder: Path, export_format: str, record: ComponentRecord, device: str = "cpu"
) -> Graph:
    """Load one component of the artifact in `folder`; imports that format's runtime alone.

    Raises ArtifactError for a format or device that this runtime doesn't have, and for a file that
    the format's runtime refuses.
    """
    check_device(export_format, device)
    module = importlib.import_module(f"model_export.runtime.graphs.{export_format}")
    graph: Graph = module.open_graph(folder, record, device)
    return graph


def check_device(export_format: str, device: str) -> None:
    """Raise ArtifactError unless artifacts of this format run on `device`."""
    devices = _DEVICES.get(export_format)
    if devices is None:
        raise ArtifactError(
            f"The manifest has the format {export_format!r}; this runtime loads "
            f"{', '.join(_DEVICES)}."
        )
    if device not in devices:
        raise ArtifactError(
            f"{export_format} artifacts run on {' or '.join(devices)}, not on {device!r}."
        )


def plain_name(name: str) -> str:
    """A tensor's name without its side: what the eager model calls it."""
    for side in ("input.", "output.", "updated."):
        if name.startswith(side):
            return name.removeprefix(side)
    return name


def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """The numpy dtype that stands for a manifest's; float32 for bfloat16."""
    return np.dtype("float32" if dtype == "bfloat16" else dtype)
