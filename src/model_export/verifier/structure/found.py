"""What a graph's own file says, whatever the manifest says about it."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from model_export.manifest import ComponentRecord

# A size, the name of a dynamic dimension, or None for a dynamic one that the file doesn't name.
FoundDimension: TypeAlias = int | str | None


@dataclass(frozen=True)
class FoundTensor:
    """A port of the graph; names that a format doesn't keep are taken from the record."""

    name: str
    dtype: str
    shape: tuple[FoundDimension, ...]


@dataclass(frozen=True)
class FoundGraph:
    """The ports of a graph in their order, what it keeps as state, and its flaws.

    `states` has the dtype of each tensor that the graph keeps by itself, under its plain name.
    `flaws` maps what was looked at (`onnx.checker`) to a sentence about what is wrong, or None.
    `supplied` are inputs that the eager model knows nothing of, which the runtime fills in.
    `unrunnable` says why the runtime of this platform can't run the graph, None where it can.
    """

    inputs: tuple[FoundTensor, ...]
    outputs: tuple[FoundTensor, ...]
    flaws: Mapping[str, str | None]
    states: Mapping[str, str] = field(default_factory=dict)
    supplied: frozenset[str] = frozenset()
    unrunnable: str | None = None


class _Inspector(Protocol):
    def inspect(
        self, artifact: Path, record: ComponentRecord, spec: Mapping[str, Any]
    ) -> FoundGraph: ...


def inspect(
    artifact: Path, export_format: str, record: ComponentRecord, spec: Mapping[str, Any]
) -> FoundGraph:
    """Read the graph of a component, which is not run; imports that format's packages alone.

    Raises UnreadableGraph if the file isn't one of its format.
    """
    module: _Inspector = importlib.import_module(f"model_export.verifier.structure.{export_format}")
    return module.inspect(artifact, record, spec)


class UnreadableGraph(Exception):
    """A file that its format's own reader refuses; the message says which and why."""
