"""Lowering without a trace of what a pass has left as it was."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest
from transformers import Qwen3ForCausalLM

from exporter.backends.executorch.traces import counted_traces
from exporter.backends.tiny_models import export, generation_spec, left_padded
from model_export.exporter.backends.executorch import engine
from model_export.manifest import ComponentRecord


def test_the_program_is_the_engines_own(
    model: Qwen3ForCausalLM,
    growing: tuple[ComponentRecord, Path, list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If the engine alone traces as seldom, executorch has mended it: remove unchanged_graphs."""
    _, ours, few = growing
    monkeypatch.setattr(engine, "unchanged_graphs_kept", nullcontext)
    with counted_traces() as many:
        export(model, left_padded(2, 8, 3), generation_spec("executorch", {}), tmp_path)
    assert (tmp_path / "decode.pte").read_bytes() == ours.read_bytes()
    assert len(few) < len(many) / 4
