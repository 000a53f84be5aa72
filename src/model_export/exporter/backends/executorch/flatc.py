"""Finds the FlatBuffers compiler that serializes each delegate and the program itself."""

from __future__ import annotations

import os
from pathlib import Path

import executorch.data.bin
from executorch.exir._serialize import _flatbuffer

from model_export.exporter.errors import ExportError


def packaged_flatc() -> Path:
    """The `flatc` inside the executorch wheel; raises ExportError if it has none."""
    for folder in executorch.data.bin.__path__:
        flatc = Path(folder) / "flatc"
        if flatc.is_file():
            return flatc
    raise ExportError(
        "resolve",
        "has an executorch without `data/bin/flatc`, which every .pte is written with",
        "Use the executorch wheel of this platform",
    )


def use_packaged_flatc() -> None:
    """Point ExecuTorch at the `flatc` inside its own wheel.

    ExecuTorch 1.3.1 looks on PATH, where an export has nothing but what the machine happens to
    have; and the wheel's `bin/flatc` there is a Python script that starts the same binary, once a
    delegate. Raises ExportError if the wheel has no such file.
    """
    os.environ["FLATC_EXECUTABLE"] = str(packaged_flatc())
    _flatbuffer._flatc_cached_path = None
