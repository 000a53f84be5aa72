"""Exports made once for all tests of this folder: lowering takes longer than anything else here."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import Qwen3ForCausalLM

from exporter.backends.executorch.one_layer import one_layer_qwen3
from exporter.backends.executorch.traces import counted_traces
from exporter.backends.tiny_models import (
    export,
    generation_spec,
    left_padded,
    make_spec,
    tiny_bert,
)
from model_export.manifest import ComponentRecord


@pytest.fixture(scope="session")
def model() -> Qwen3ForCausalLM:
    return one_layer_qwen3()


@pytest.fixture(scope="session")
def growing(
    model: Qwen3ForCausalLM, tmp_path_factory: pytest.TempPathFactory
) -> tuple[ComponentRecord, Path, list[str]]:
    """A decode graph of `model`, its file, and the passes that have traced it again."""
    folder = tmp_path_factory.mktemp("growing")
    with counted_traces() as traces:
        records = export(model, left_padded(2, 8, 3), generation_spec("executorch", {}), folder)
    return records["decode"], folder / "decode.pte", traces


@pytest.fixture(scope="session")
def bert(tmp_path_factory: pytest.TempPathFactory) -> tuple[ComponentRecord, Path]:
    """The plain export of a tiny BERT, and its file."""
    folder = tmp_path_factory.mktemp("bert")
    spec = make_spec("executorch", {"dynamic": True})
    record = export(tiny_bert(), left_padded(2, 8, 3), spec, folder)["model"]
    return record, folder / record.file
