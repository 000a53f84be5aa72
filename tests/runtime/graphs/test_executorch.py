"""Graphs in ExecuTorch's runtime, against the eager models."""

from __future__ import annotations

from pathlib import Path

import pytest

from runtime.graphs.graph_cases import (
    Component,
    check_damage,
    check_plain,
    check_wrong_inputs,
    export_bert,
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
