"""Lowering without what ExecuTorch does again and again: the program is the engine's own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from executorch.exir import lowered_backend_module
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
    """If the engine alone does as little, executorch has mended it: remove the module named."""
    _, ours, few = growing
    monkeypatch.setattr(engine, "unchanged_graphs_kept", nullcontext)
    monkeypatch.setattr(engine, "partitions_cut_in_place", nullcontext)
    copies = []
    copy: Callable[..., Any] = lowered_backend_module.legalize_graph

    def counted(*args: Any) -> Any:
        copies.append(args)
        return copy(*args)

    monkeypatch.setattr(lowered_backend_module, "legalize_graph", counted)
    with counted_traces() as many:
        export(model, left_padded(2, 8, 3), generation_spec("executorch", {}), tmp_path)
    assert (tmp_path / "decode.pte").read_bytes() == ours.read_bytes()
    # Not the lengths: the first lowering of a process also traces XNNPACK's own patterns.
    spared = Counter(many) - Counter(few)
    assert spared.total() > len(many) / 2, "unchanged_graphs.py"
    # One for each partition of the layer.
    assert len(copies) > 10, "partitions.py: sort_in_place"
