"""Normalisation: what leaves a graph, or is rewritten in it, before it is written.

Each pass is a file of its own, changes the model in place and knows nothing of the others.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir

from model_export.exporter.backends.onnx.passes.divide_by_root import DivideByRootPass
from model_export.exporter.backends.onnx.passes.drop_host_metadata import DropHostMetadataPass
from model_export.exporter.backends.onnx.passes.grouped_attention import GroupedAttentionPass
from model_export.exporter.backends.onnx.passes.name_dimensions import NameDimensionsPass
from model_export.exporter.backends.onnx.passes.static_dimensions import StaticDimensionsPass


def normalise(
    model: onnx_ir.Model, dimension_names: Mapping[str, Mapping[int, str]], optimize: bool
) -> None:
    """Run all passes on `model`, in this order; those that make it faster only with `optimize`.

    `dimension_names` are the names that the target gives to axes of inputs, by the engine's name
    of the tensor.
    """
    for step in (
        *((DivideByRootPass(), GroupedAttentionPass()) if optimize else ()),
        DropHostMetadataPass(),
        StaticDimensionsPass(),
        NameDimensionsPass(dimension_names),
    ):
        step(model)
