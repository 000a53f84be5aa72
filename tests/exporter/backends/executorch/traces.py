"""How often lowering traces a graph again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from executorch.exir.pass_base import _ExportPassBase


@contextmanager
def counted_traces() -> Iterator[list[str]]:
    """The passes that trace a graph again meanwhile, in their order."""
    seen: list[str] = []
    original: Callable[..., Any] = _ExportPassBase.call_submodule

    def counted(self: _ExportPassBase, *args: Any) -> Any:
        seen.append(type(self).__name__)
        return original(self, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_ExportPassBase, "call_submodule", counted)
        yield seen
