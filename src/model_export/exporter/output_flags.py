"""Arguments of a forward call that aren't inputs of a graph."""

from __future__ import annotations

from typing import Any

import torch
from transformers.exporters.utils import prepare_for_export


def split_flags(
    module: torch.nn.Module, inputs: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """`inputs` as the graph will take them, and the output flags (`use_cache`) among them.

    The engine takes the flags out and adds what it computes before tracing (positions of image
    patches), and torch.export wants dynamic shapes for exactly what is left.
    """
    _, prepared, flags = prepare_for_export(module, dict(inputs))
    return dict(prepared), flags
