"""Bounds that the target gives hold at both ends, and nothing is taken outside of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.backends.bounded import build_bounded, check_bounds


@pytest.mark.parametrize("stateful", [True, False])
def test_both_ends_and_what_lies_outside(tmp_path: Path, stateful: bool) -> None:
    """A cache that is the graph's own state isn't fed, and has no bounds for a caller."""
    built = build_bounded("openvino", tmp_path, stateful=stateful)
    check_bounds(built, cache_is_fed=not stateful)
