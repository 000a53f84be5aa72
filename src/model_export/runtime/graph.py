"""What every backend's graph offers: named numpy arrays in, named numpy arrays out."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from model_export.manifest import ComponentRecord

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


def open_graph(folder: Path, export_format: str, record: ComponentRecord) -> Graph:
    """Load one component of the artifact in `folder`; imports that format's runtime alone."""
    module = importlib.import_module(f"model_export.runtime.graphs.{export_format}")
    graph: Graph = module.open_graph(folder, record)
    return graph


def plain_name(name: str) -> str:
    """A tensor's name without its side: what the eager model calls it."""
    for side in ("input.", "output.", "updated."):
        if name.startswith(side):
            return name.removeprefix(side)
    return name


def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """The numpy dtype that stands for a manifest's; float32 for bfloat16."""
    return np.dtype("float32" if dtype == "bfloat16" else dtype)
