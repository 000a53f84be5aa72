"""Artifacts in apps: `load(path)` gives a model that generates, chats, embeds or runs its graphs.

Needs numpy, tokenizers, jinja2 and the one runtime of the artifact's format; no torch for ONNX and
OpenVINO. `docs/runtime.md` is the manual.
"""

from __future__ import annotations

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
