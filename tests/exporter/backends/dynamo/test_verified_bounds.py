"""Bounds that the target gives hold at both ends, and nothing is taken outside of them."""

from __future__ import annotations

from pathlib import Path

from exporter.backends.bounded import build_bounded, check_bounds


def test_both_ends_and_what_lies_outside(tmp_path: Path) -> None:
    check_bounds(build_bounded("dynamo", tmp_path))
