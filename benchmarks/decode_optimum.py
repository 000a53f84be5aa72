"""optimum's export of the checkpoint in ONNX Runtime: a contender of `benchmarks:decode`."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from benchmarks.decode_child import Generate, Task, contend
from benchmarks.decode_generate import generate_with
from optimum.onnxruntime import ORTModelForCausalLM


def load_exported(task: Task) -> Generate:
    """Export the checkpoint into a temporary folder, and load that."""
    with tempfile.TemporaryDirectory() as name:
        _lay_out(task.folder, Path(name))
        model = ORTModelForCausalLM.from_pretrained(name, export=True, use_io_binding=True)
        return generate_with(model, task)


def _lay_out(checkpoint: Path, folder: Path) -> None:
    """The checkpoint as transformers 4.57.6 reads it.

    It passes over the `rope_parameters` of transformers 5, and takes a `rope_theta` of 10000.
    """
    for file in checkpoint.iterdir():
        if file.name != "config.json":
            (folder / file.name).symlink_to(file.resolve())
    config = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
    config["rope_theta"] = config["rope_parameters"]["rope_theta"]
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")


if __name__ == "__main__":
    contend(load_exported)
