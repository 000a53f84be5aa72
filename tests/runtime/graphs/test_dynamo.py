"""Graphs in torch, against the eager models."""

from __future__ import annotations

import typing
from pathlib import Path
from typing import Any

import pytest
import torch

from exporter.backends.tiny_models import left_padded, positions_of, tiny_bart
from model_export.runtime.graphs.dynamo import open_call
from model_export.runtime.graphs.saved_program import empty_cache, load
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


def test_growing_cache_travels(tmp_path: Path) -> None:
    check_cache_travels(export_decode("dynamo", tmp_path))


def test_static_cache_is_written_to_a_copy(tmp_path: Path) -> None:
    settings = {"cache_implementation": "static", "max_cache_len": 32}
    check_inputs_stay(export_decode("dynamo", tmp_path, generation_config=settings), 32)


def test_bfloat16_comes_out_as_float32(tmp_path: Path) -> None:
    # Three significant digits, and hidden states up to 3.
    check_plain(export_bert("dynamo", tmp_path, torch.bfloat16), 3e-2)


def test_torch_still_refuses_short_prompts_to_an_empty_cache(tmp_path: Path) -> None:
    """Once this fails, `Call` can keep the guards of a program (torch 2.12.0)."""
    component = export_decode("dynamo", tmp_path)
    program = load(tmp_path / component.record.file)
    inputs = left_padded(1, 3, 0)
    inputs["position_ids"] = positions_of(inputs["attention_mask"])
    with pytest.raises(AssertionError, match="Guard failed"):
        program.module()(**inputs, cache=empty_cache(program, 1))
    component.graph()  # Loads without them.


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


def test_torch_still_warns_with_too_few_arguments(tmp_path: Path) -> None:
    """Once this fails, `load` needn't silence the warning (torch 2.12.0)."""
    component = export_decode("dynamo", tmp_path, model=tiny_bart())
    path = tmp_path / component.record.file
    load(path)
    # pytest raises what logging would print.
    with pytest.raises(TypeError, match="not enough arguments for format string"):
        torch.export.load(str(path))
