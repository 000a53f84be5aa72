"""Names in the IR that depend on the graph alone."""

from __future__ import annotations

import re

import openvino

_AUTOMATIC = re.compile(r"([A-Za-z]\w*)_\d+")


def make_names_stable(model: openvino.Model, name: str) -> None:
    """Call the model `name`, and number the operations that nobody named in the order they run.

    OpenVINO 2026.3.1 numbers unnamed operations and models by counters of the whole process
    (`Constant_21396`, `Model3`): a component would look different when another one was converted
    before it.
    """
    model.set_friendly_name(name)
    for index, operation in enumerate(model.get_ordered_ops()):
        match = _AUTOMATIC.fullmatch(operation.get_friendly_name())
        if match and match.group(1) == operation.get_type_name():
            operation.set_friendly_name(f"{match.group(1)}_{index}")
