"""Bounds that the target gives hold at both ends, and nothing is taken outside of them."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers.exporters.exporter_executorch import _extend_sym_ops_allowlist

from exporter.backends.bounded import build_bounded, check_bounds


def test_both_ends_and_what_lies_outside(tmp_path: Path) -> None:
    check_bounds(build_bounded("executorch", tmp_path))


def test_engine_still_leaves_out_what_asserts_compute_with() -> None:
    """If this fails, look whether `sym_ops.py` can go (transformers 5.24.0)."""
    assert not {torch.sym_min, torch.sym_max} & _extend_sym_ops_allowlist(set())
