"""Measures a sample of the support table anew, and holds the committed page against it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.families import FAMILIES
from support.measure import measure
from support.modes import MODES
from support.table import write_table

# One that has all modes and takes a few seconds each, and one that has no cache.
SAMPLE = ["Mamba", "ViT"]
FORMAT = os.environ["SUPPORT_FORMAT"]


@pytest.mark.parametrize("family", SAMPLE)
def test_the_page_says_what_is_measured(family: str) -> None:
    page = Path("docs/support.md").read_text(encoding="utf-8")
    fresh = write_table(list(measure(FORMAT, [family])))
    for mode in MODES:
        assert _cell(fresh, family, mode.name) == _cell(page, family, mode.name), mode.name


def _cell(page: str, family: str, mode: str) -> str:
    """The word of a cell, and the text of its note."""
    (line,) = (line for line in page.splitlines() if line.startswith(f"| {family} |"))
    (header,) = (line for line in page.splitlines() if line.startswith("| family |"))
    columns = [name.strip() for name in header.strip("|").split("|")]
    place = columns.index(f"{FORMAT}: {mode}") if f"{FORMAT}: {mode}" in columns else None
    if place is None:
        return ""
    word, _, number = line.strip("|").split("|")[place].strip().partition(" (")
    notes = dict(line.split(". ", 1) for line in page.splitlines() if line[:1].isdigit())
    return f"{word}: {notes[number.rstrip(')')]}" if number else word


def test_the_sample_is_in_the_table() -> None:
    assert set(SAMPLE) <= {family.name for family in FAMILIES}
