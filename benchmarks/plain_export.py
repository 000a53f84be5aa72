"""The script that people write: `transformers.exporters`, nothing around it.

Usage: `plain_export.py FORMAT CHECKPOINT OUTPUT TEXTS...`
"""

from __future__ import annotations

import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.exporters.auto import AutoExportConfig, get_exporter_class


def main(export_format: str, checkpoint: str, output: str, *texts: str) -> None:
    """Export a generating checkpoint's prefill and multi-token decode to `output`."""
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(checkpoint, padding_side="left")
    inputs = dict(tokenizer(list(texts), padding=True, return_tensors="pt"))
    config = AutoExportConfig.from_dict({"export_format": export_format, "dynamic": True})
    exported = get_exporter_class(export_format)().export_for_generation(
        model, inputs, config=config, multi_token_decode=True
    )
    exported.save_pretrained(output)


if __name__ == "__main__":
    main(*sys.argv[1:])
