"""optimum's export of the checkpoint in ONNX Runtime: a contender of `benchmarks:decode`.

Its transformers, 4.57.6, doesn't read all that transformers 5 writes. No test has this resolve,
which `./pants test ::` would have to install: the benchmark itself fails once what is done about it
here isn't needed any more.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from benchmarks.decode_child import Generate, Task, contend
from benchmarks.decode_generate import generate_with
from optimum.onnxruntime import ORTModelForCausalLM
from transformers import AutoConfig, AutoTokenizer


def load_exported(task: Task) -> Generate:
    """Export the checkpoint into a temporary folder, and load that."""
    _check_tokenizer(task.folder)
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
    theta = config["rope_parameters"]["rope_theta"]
    read = getattr(AutoConfig.from_pretrained(checkpoint), "rope_theta", theta)
    assert read != theta, "transformers reads `rope_parameters`: drop _lay_out"
    config["rope_theta"] = theta
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")


def _check_tokenizer(checkpoint: Path) -> None:
    """That `generate_with` still has to name the class of the tokenizer."""
    try:
        AutoTokenizer.from_pretrained(checkpoint)
    except ValueError as error:
        if "TokenizersBackend" not in str(error):
            raise
        return
    raise AssertionError("AutoTokenizer reads what transformers 5 writes: use it in generate_with")


if __name__ == "__main__":
    contend(load_exported)
