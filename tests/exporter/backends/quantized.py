"""Quantized exports of tiny models by the whole pipeline, and the verifier's word on them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from exporter.backends.tiny_models import generation_spec, make_spec
from model_export.exporter.pipeline import run_export
from model_export.plugin.quantizer_checks import check_quantizer
from model_export.plugin.quantizer_combinations import check_combination
from model_export.spec import CheckpointOrigin, ExportRequest, ExportSpec, Toolchain
from verifier.artifacts import Built


def quantized_spec(
    model: PreTrainedModel, export_format: str, quantizer: dict[str, Any], **fields: Any
) -> ExportSpec:
    """A dynamic spec with `quantizer` as a BUILD file has it; for generation if the model does."""
    make = generation_spec if model.can_generate() else make_spec
    config = {"dynamic": True, **fields.pop("config", {})}
    spec = make(export_format, config, quantizer=check_quantizer(quantizer), **fields)
    check_combination(spec)
    return spec


def export_quantized(model: PreTrainedModel, spec: ExportSpec, folder: Path) -> Built:
    """What the pipeline leaves of `model`, saved as a checkpoint without a tokenizer."""
    model.save_pretrained(folder / "checkpoint")
    request = ExportRequest(
        spec, CheckpointOrigin("local", "tiny"), Toolchain(spec.export_format, "0" * 64)
    )
    built = Built(folder / "artifact", folder / "probe")
    run_export(request, folder / "checkpoint", built.artifact, built.probe)
    return built


def weights_size(built: Built) -> int:
    """The bytes of all files of the artifact but its manifest."""
    return sum(file.size for file in built.manifest.files)
