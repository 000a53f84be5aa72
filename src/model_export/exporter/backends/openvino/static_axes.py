"""Axes that aren't dynamic, as sizes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import openvino
from transformers.exporters.utils import get_leaf_tensors


def fix_static_axes(
    model: openvino.Model,
    inputs: Mapping[str, Any],
    dynamic_axes: Mapping[str, Collection[int]] | None,
) -> None:
    """Give each input port the traced size on every axis that `dynamic_axes` doesn't list.

    transformers 5.24.0 converts with `TorchFXPythonDecoder(..., dynamic_shapes=True)`, so that a
    graph that was traced for one shape says `[?,?]`, takes any other and computes something else or
    fails inside. `inputs` are the forward kwargs of the trace; None changes nothing.
    """
    if dynamic_axes is None:
        return
    leaves = get_leaf_tensors(dict(inputs))
    shapes = {}
    for port in model.inputs:
        name = port.get_any_name()
        leaf = name.removeprefix("input.")
        if leaf in leaves:
            shape = openvino.PartialShape(list(leaves[leaf].shape))
            for axis in dynamic_axes.get(leaf, ()):
                shape[axis] = openvino.Dimension()
            shapes[name] = shape
    model.reshape(shapes)
