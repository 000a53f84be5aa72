"""Lowering without a trace of what a pass has left as it was."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from executorch.exir.pass_base import _ExportPassBase

from exporter.backends.tiny_models import export, generation_spec, left_padded, tiny_qwen3
from model_export.exporter.backends.executorch import engine


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The passes that have traced a graph again, in their order."""
    seen: list[str] = []
    original: Callable[..., Any] = _ExportPassBase.call_submodule

    def counted(self: _ExportPassBase, *args: Any) -> Any:
        seen.append(type(self).__name__)
        return original(self, *args)

    monkeypatch.setattr(_ExportPassBase, "call_submodule", counted)
    return seen


def _lowered(folder: Path) -> bytes:
    spec = generation_spec("executorch", {}, components=("decode",))
    export(tiny_qwen3(), left_padded(2, 8, 3), spec, folder)
    return (folder / "decode.pte").read_bytes()


def test_the_program_is_the_engines_own(
    tmp_path: Path, traces: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the engine alone traces as seldom, executorch has mended it: remove unchanged_graphs."""
    ours = _lowered(tmp_path / "ours")
    few = len(traces)
    traces.clear()
    monkeypatch.setattr(engine, "unchanged_graphs_kept", nullcontext)
    assert _lowered(tmp_path / "engine") == ours
    assert few < len(traces) / 4
