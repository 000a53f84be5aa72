"""Measures a sample of the support table anew, and holds the committed page against it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.families import FAMILIES
from support.measure import measure
from support.modes import MODES
from support.quantizers import QUANTIZERS
from support.table import write_table

# One that has all modes and takes a few seconds each, and one that has no cache, quantized too.
SAMPLE = ["Mamba", "ViT"]
QUANTIZED = ["ViT"]
# Two of each format's that differ in kind.
QUANTIZER_NAMES = {
    "dynamo": ("NNCF TorchFX 4-bit weights", "PT2E X86Inductor static"),
    "executorch": ("NNCF TorchFX 8-bit weights", "PT2E XNNPACK static, by tensor"),
    "onnx": ("ONNX Runtime dynamic", "NNCF 4-bit weights"),
    "openvino": ("NNCF int8", "NNCF 4-bit weights"),
}
FORMAT = os.environ["SUPPORT_FORMAT"]


@pytest.mark.parametrize("family", SAMPLE)
def test_the_page_says_what_is_measured(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sampled = tuple(
        item
        for item in QUANTIZERS
        if FORMAT in item.formats and item.name in QUANTIZER_NAMES[FORMAT]
    )
    assert len(sampled) == len(QUANTIZER_NAMES[FORMAT])
    monkeypatch.setattr("support.measure.QUANTIZERS", sampled)
    page = Path("docs/support.md").read_text(encoding="utf-8")
    fresh = write_table(list(measure(FORMAT, [family], family in QUANTIZED)))
    names = [mode.name for mode in MODES]
    if family in QUANTIZED:
        names += [item.name for item in sampled]
    for name in names:
        assert _cell(fresh, family, name) == _cell(page, family, name), name


def _cell(page: str, family: str, name: str) -> str:
    """The word of a cell in the table that has the column, and the text of its note."""
    columns: list[str] = []
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[0] == "family":
            columns = cells
        elif cells[0] == family and f"{FORMAT}: {name}" in columns:
            word, _, number = cells[columns.index(f"{FORMAT}: {name}")].partition(" (")
            notes = dict(line.split(". ", 1) for line in page.splitlines() if line[:1].isdigit())
            return f"{word}: {notes[number.rstrip(')')]}" if number else word
    return ""


def test_the_sample_is_in_the_table() -> None:
    assert set(SAMPLE) <= {family.name for family in FAMILIES}
