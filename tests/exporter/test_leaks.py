"""A path of the build machine in any file of an artifact is found, wherever it lies."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from model_export.exporter.errors import ExportError
from model_export.exporter.leaks import build_paths, check_no_leak


@pytest.mark.parametrize("position", [0, 2**20 - 21, 2**20 - 10, 2**20 - 1, 5_000_000, 9_999_900])
def test_finds_a_path_at_any_offset(position: int, tmp_path: Path) -> None:
    artifact = tmp_path / "artifact"
    (artifact / "deep").mkdir(parents=True)
    content = bytearray(10_000_000)
    needle = b"/build/machine/folder"
    content[position : position + len(needle)] = needle
    (artifact / "deep" / "weights.bin").write_bytes(content)
    (artifact / "empty").touch()
    with pytest.raises(ExportError, match=r"`deep/weights.bin` would hold a path"):
        check_no_leak(artifact, [needle])


def test_passes_a_clean_artifact(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    check_no_leak(tmp_path, [b"/build/machine/folder"])


def test_looks_for_the_resolve_and_the_given_folders(tmp_path: Path) -> None:
    paths = build_paths(tmp_path / "a" / "b")
    assert str(tmp_path / "a" / "b").encode() in paths
    assert sys.prefix.encode() in paths or sys.prefix.count("/") <= 2
    assert all(path.count(b"/") > 2 for path in paths)
