"""Graphs in ExecuTorch's runtime, against the eager models."""

from __future__ import annotations

from pathlib import Path

import pytest

from runtime.graphs.graph_cases import (
    Component,
    check_cache_travels,
    check_damage,
    check_inputs_stay,
    check_plain,
    check_wrong_inputs,
    export_bert,
    export_decode,
)


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Component:
    return export_bert("executorch", tmp_path_factory.mktemp("bert"))


def test_plain(bert: Component) -> None:
    check_plain(bert, 1e-5)


def test_wrong_inputs(bert: Component) -> None:
    check_wrong_inputs(bert)


def test_damage(bert: Component, tmp_path: Path) -> None:
    check_damage(bert, tmp_path)


def test_growing_cache_travels(tmp_path: Path) -> None:
    check_cache_travels(export_decode("executorch", tmp_path))


def test_static_cache_is_written_to_a_copy(tmp_path: Path) -> None:
    settings = {"cache_implementation": "static", "max_cache_len": 32}
    check_inputs_stay(export_decode("executorch", tmp_path, generation_config=settings), 32)
