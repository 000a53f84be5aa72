"""What the lines of a calibration become, as an export feeds them to a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, PreTrainedModel

from model_export.exporter.checkpoint_folder import Checkpoint
from model_export.exporter.quantizers.calibration import calibration_inputs
from model_export.exporter.quantizers.calibration_lines import choose_lines
from model_export.exporter.quantizers.calibration_media import calibration_processor
from model_export.spec import ExportSpec


def calibration_of(folder: Path, lines: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
    """Of all images and sounds in `folder`, and `lines` in a file there if there are any."""
    files = sorted(path.name for path in folder.glob("*.[pw][na][gv]"))
    if lines:
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / "x.jsonl").write_text(text, encoding="utf-8")
        files.append("x.jsonl")
    return {"files": files, "samples": 64, "seed": 0, "max_length": 128, **fields}


def batches_of(
    folder: Path, model: PreTrainedModel, traced: dict[str, Any], spec: ExportSpec
) -> list[dict[str, Any]]:
    """What the lines become, in the order of the files."""
    checkpoint = Checkpoint(folder / "checkpoint", {}, "", False, False, (), ())
    lines = sorted(choose_lines(spec, folder), key=lambda line: line.where)
    processor = calibration_processor(checkpoint, model, lines)
    tokenizer = None
    if (checkpoint.folder / "tokenizer.json").exists():
        tokenizer = AutoTokenizer.from_pretrained(checkpoint.folder)
    return list(calibration_inputs(model, tokenizer, traced, spec, lines, processor))
