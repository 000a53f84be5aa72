"""A plain export in a process that has never seen the model."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import torch

from exporter.backends.tiny_models import export, left_padded, make_spec, tiny_bert

_RUN_ALONE = """
import sys
from pathlib import Path

import torch

from model_export.runtime.graphs.saved_program import load

folder = Path(sys.argv[1])
forward = load(folder / "model.pt2").module()
for name in ("traced", "other"):
    inputs = torch.load(folder / f"{name}.pt")
    torch.save(forward(**inputs).last_hidden_state, folder / f"{name}.out.pt")
assert "transformers.models.bert.modeling_bert" not in sys.modules
"""


def test_fresh_process_computes_what_the_model_computes(tmp_path: Path) -> None:
    model = tiny_bert()
    samples = {"traced": left_padded(2, 8, 3), "other": left_padded(3, 13, 4, seed=1)}
    export(model, left_padded(2, 8, 3), make_spec("dynamo", {"dynamic": True}), tmp_path)
    for name, inputs in samples.items():
        torch.save(inputs, tmp_path / f"{name}.pt")
    subprocess.run(
        [sys.executable, "-c", _RUN_ALONE, str(tmp_path)],
        check=True,
        env={"PYTHONPATH": os.pathsep.join(os.path.abspath(path) for path in sys.path if path)},
    )
    for name, inputs in samples.items():
        with torch.no_grad():
            expected = model(**inputs).last_hidden_state
        torch.testing.assert_close(torch.load(tmp_path / f"{name}.out.pt"), expected)
