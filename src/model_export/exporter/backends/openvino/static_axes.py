"""Axes that aren't dynamic, as sizes."""

from __future__ import annotations

from collections.abc import Mapping

import openvino


def fix_static_axes(model: openvino.Model, shapes: Mapping[str, tuple[int | None, ...]]) -> None:
    """Give each input port the sizes that the trace fixed; `shapes` has None where it may change.

    transformers 5.24.0 converts with `TorchFXPythonDecoder(..., dynamic_shapes=True)`, so that a
    graph that was traced for one shape says `[?,?]`, takes any other and computes something else or
    fails inside.
    """
    ports = {port.get_any_name(): port for port in model.inputs}
    fixed = {
        name: openvino.PartialShape([-1 if size is None else size for size in shapes[leaf]])
        for name in ports
        if (leaf := name.removeprefix("input.")) in shapes
    }
    model.reshape(fixed)
