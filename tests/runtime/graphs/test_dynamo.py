"""Graphs in torch, against the eager models."""

from __future__ import annotations

import typing
from pathlib import Path
from typing import Any

import pytest
import torch

from model_export.runtime.graphs.dynamo import open_call
from model_export.runtime.graphs.saved_program import load
from runtime.graphs.graph_cases import (
    Component,
    check_damage,
    check_plain,
    check_wrong_inputs,
    export_bert,
)


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Component:
    return export_bert("dynamo", tmp_path_factory.mktemp("bert"))


def test_plain(bert: Component) -> None:
    check_plain(bert, 1e-5)


def test_wrong_inputs(bert: Component) -> None:
    check_wrong_inputs(bert)


def test_damage(bert: Component, tmp_path: Path) -> None:
    check_damage(bert, tmp_path)


def test_a_program_in_use_is_shared_until_its_file_changes(bert: Component, tmp_path: Path) -> None:
    record = bert.record
    copy = tmp_path / record.file
    copy.write_bytes((bert.folder / record.file).read_bytes())
    first = open_call(tmp_path, record)
    assert open_call(tmp_path, record) is first
    copy.write_bytes((bert.folder / record.file).read_bytes())
    assert open_call(tmp_path, record) is not first


def test_bfloat16_comes_out_as_float32(tmp_path: Path) -> None:
    # Three significant digits, and hidden states up to 3.
    check_plain(export_bert("dynamo", tmp_path, torch.bfloat16), 3e-2)


def test_torch_still_asks_for_type_hints_once_a_value(
    bert: Component, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[type] = []
    hints = typing.get_type_hints

    def count(schema_class: type, **names: Any) -> dict[str, Any]:
        asked.append(schema_class)
        return hints(schema_class, **names)

    monkeypatch.setattr(typing, "get_type_hints", count)
    torch.export.load(str(bert.folder / bert.record.file))
    assert len(asked) > 10 * len(set(asked))
    asked.clear()
    load(bert.folder / bert.record.file)
    assert 0 < len(asked) == len(set(asked))
