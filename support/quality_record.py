"""What is measured of one artifact; standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

NEAREST, PERPLEXITY = "nearest sentence", "perplexity"


@dataclass(frozen=True)
class Quality:
    """`size` in bytes of all files; `value` by `kind`: a share, higher is better, or a perplexity.

    `quantizer` is the spec's, None for the float32 artifact that the others are compared with.
    """

    name: str
    export_format: str
    checkpoint: str
    quantizer: Mapping[str, Any] | None
    size: int
    kind: str
    value: float
