"""Which component is quantized with what, and what calibrates it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from model_export.exporter.checkpoint_folder import Checkpoint
from model_export.exporter.components import Component
from model_export.exporter.errors import ExportError
from model_export.exporter.quantizers.calibration import calibration_inputs, component_inputs
from model_export.exporter.quantizers.calibration_lines import choose_lines, files_read
from model_export.exporter.quantizers.calibration_media import calibration_processor
from model_export.exporter.quantizers.quantization import Quantization
from model_export.manifest import CalibrationRecord, FileRecord
from model_export.quantizer_table import is_calibrated, quantizer_of
from model_export.spec import ExportSpec


def plan_quantization(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None,
    inputs: Mapping[str, Any],
    components: Sequence[Component],
    spec: ExportSpec,
    calibration: Path,
    checkpoint: Checkpoint,
) -> dict[str, Quantization]:
    """The quantization of each component that has one, by its name.

    `inputs` are the sample inputs, `calibration` is the folder with the files that the spec names,
    and `checkpoint` has the processor for images and sound among them.
    Raises ExportError if `quantizer` names a component that isn't built, and for calibration files
    that can't be used.
    """
    names = [component.name for component in components]
    _check_names(spec, names)
    chosen = {
        name: quantizer
        for name in names
        if (quantizer := quantizer_of(spec.quantizer, name)) is not None
    }
    samples: dict[str, list[dict[str, Any]]] = {}
    if spec.calibration is not None:
        lines = choose_lines(spec, calibration)
        processor = calibration_processor(checkpoint, model, lines)
        batches = calibration_inputs(model, tokenizer, inputs, spec, lines, processor)
        samples = component_inputs(model, batches, spec)
    elif any(map(is_calibrated, chosen.values())):
        # What is traced has its floats blanked, which would calibrate every range to nothing.
        samples = component_inputs(model, iter([dict(inputs)]), spec)
        print(
            "Calibrating on the sample inputs alone: `calibration` takes files.",
            file=sys.stderr,
        )
    return {
        name: Quantization(quantizer, tuple(samples.get(name, ())))
        for name, quantizer in chosen.items()
    }


def _check_names(spec: ExportSpec, names: Sequence[str]) -> None:
    if spec.quantizer and "type" not in spec.quantizer:
        for name in spec.quantizer:
            if name not in names:
                raise ExportError(
                    f"quantizer[{name!r}]",
                    "is no component of this export",
                    f"Choose from {', '.join(names)}",
                )


def record_calibration(
    spec: ExportSpec, plan: Mapping[str, Quantization], calibration: Path
) -> CalibrationRecord | None:
    """What the manifest says of it; None where nothing was calibrated."""
    calibrated = [name for name, item in plan.items() if is_calibrated(item.settings)]
    if not calibrated:
        return None
    paths = files_read(spec, calibration) if spec.calibration else ()
    return CalibrationRecord(
        "files" if spec.calibration else "sample_inputs",
        tuple(FileRecord.of(path, calibration) for path in paths),
        {name: len(plan[name].samples) for name in calibrated},
    )
