"""The contract from the export process to the verifier: what the eager model said, and to what.

A probe is a folder with `probe.json` (this module's dataclasses) and `probe.safetensors` (every
tensor they name). It is made beside an artifact and never shipped. Standard library only; tensors
are read and written by whoever has numpy or torch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

PROBE_FILE = "probe.json"
TENSORS_FILE = "probe.safetensors"
PROBE_VERSION = 1


@dataclass(frozen=True)
class GraphCase:
    """One call of one component, and what the eager module returned.

    `inputs` and `outputs` map the engine's name of a tensor without its side (`cache.layers.0.keys`
    for what a graph calls `input.cache.layers.0.keys` or `output.cache.layers.0.keys`) to its key
    in `probe.safetensors`. `padding`, if any, is the input that marks real positions: at others an
    output says nothing. `traced` is true for the shape that the graph was traced with.
    """

    component: str
    name: str
    traced: bool
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    padding: str | None = None


@dataclass(frozen=True)
class GenerationCase:
    """A greedy generation of `steps` tokens from one prompt, without any logits processor.

    `inputs` are the kwargs of `generate` by name (`input_ids` and `attention_mask` [batch, prompt]
    int64; `input_features`, ...) as keys in `probe.safetensors`. `chunks` are the numbers of tokens
    that the prompt is fed in; one number feeds it in one call. `tokens` is the key of the new
    tokens [batch, steps] int64, `logits` that of the logits they were chosen from [batch, steps,
    vocabulary] float32. `cache_shapes` has for every cache tensor its shape after the prompt and
    after each step but the last, without the batch axis.

    Cases are run one after the other in one session: the second finds the state of the first.
    """

    name: str
    inputs: Mapping[str, str]
    chunks: tuple[int, ...]
    tokens: str
    logits: str
    cache_shapes: Mapping[str, tuple[tuple[int, ...], ...]]


@dataclass(frozen=True)
class Probe:
    """All of `probe.json`."""

    graphs: tuple[GraphCase, ...]
    generations: tuple[GenerationCase, ...]

    def to_json(self) -> str:
        """JSON with sorted keys."""
        return json.dumps({"probe_version": PROBE_VERSION, **asdict(self)}, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Probe:
        """Read what `to_json` wrote; raises ValueError for another version."""
        document = json.loads(text)
        if document["probe_version"] != PROBE_VERSION:
            raise ValueError(
                f"This verifier reads probe version {PROBE_VERSION}, "
                f"not {document['probe_version']!r}: exporter and verifier must match."
            )
        return cls(
            tuple(GraphCase(**item) for item in document["graphs"]),
            tuple(_generation(item) for item in document["generations"]),
        )


def _generation(item: dict[str, Any]) -> GenerationCase:
    shapes = {
        name: tuple(tuple(shape) for shape in over_steps)
        for name, over_steps in item["cache_shapes"].items()
    }
    return GenerationCase(**{**item, "chunks": tuple(item["chunks"]), "cache_shapes": shapes})


def read_probe(folder: Path) -> Probe:
    """The probe in `folder`, without its tensors."""
    return Probe.from_json((folder / PROBE_FILE).read_text(encoding="utf-8"))
