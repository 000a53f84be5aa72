"""What every format's backend provides to the export pipeline."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import torch

from model_export.exporter.quantizers.quantization import Quantization
from model_export.manifest import ComponentRecord
from model_export.spec import ExportSpec


class Backend(Protocol):
    """One export format: `backends/<format>/__init__.py` has one as `BACKEND`."""

    # Distributions whose versions the manifest records, beside torch and transformers.
    packages: tuple[str, ...]

    def check(self, spec: ExportSpec) -> None:
        """Raise ExportError for a spec that this backend can't build, before a model is loaded."""
        ...

    def export(
        self,
        name: str,
        module: torch.nn.Module,
        inputs: dict[str, Any],
        spec: ExportSpec,
        quantization: Quantization | None = None,
    ) -> Any:
        """Export one component through the engine; return its normalised program in memory.

        `inputs` are the forward kwargs at the traced shape; tensors and caches. `quantization` is
        how this component is quantized, if it is.
        """
        ...

    def save(
        self, programs: Mapping[str, Any], directory: Path, spec: ExportSpec
    ) -> tuple[ComponentRecord, ...]:
        """Write all components below `directory`, weights once where the format allows it."""
        ...


def load_backend(export_format: str) -> Backend:
    """The backend of a format; imports that format's packages and no other's."""
    module = importlib.import_module(f"model_export.exporter.backends.{export_format}")
    backend: Backend = module.BACKEND
    return backend
