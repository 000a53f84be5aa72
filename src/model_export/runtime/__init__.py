"""Artifacts in apps: `load(path)` gives a model that generates, chats, embeds or runs its graphs.

Needs numpy, tokenizers, jinja2 and the one runtime of the artifact's format; no torch for ONNX and
OpenVINO. `docs/runtime.md` is the manual.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from model_export.runtime.errors import ArtifactError, InputError, RuntimeModelError
    from model_export.runtime.generation import Completion
    from model_export.runtime.model import Model, load

__all__ = [
    "ArtifactError",
    "Completion",
    "InputError",
    "Model",
    "RuntimeModelError",
    "load",
]

_MODULES = {
    "ArtifactError": "errors",
    "Completion": "generation",
    "InputError": "errors",
    "Model": "model",
    "RuntimeModelError": "errors",
    "load": "model",
}


def __getattr__(name: str) -> Any:
    """Import what is asked for: the verifier takes graphs of this package, and no text layer."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
