"""The refusal of torch.export's strict mode for formats whose engine can't use it."""

from __future__ import annotations

from model_export.exporter.errors import ExportError
from model_export.spec import ExportSpec


def refuse_strict(spec: ExportSpec) -> None:
    """Raise ExportError if `spec` wants strict mode.

    transformers 5.24.0 wraps a model's outputs for ONNX and OpenVINO in a function that compares
    tensors by `id()`, which Dynamo (torch 2.12.0) refuses to trace: "Unsupported call_id() without
    source", whatever the model. The backends' tests fail once that works.
    """
    if spec.config["strict"]:
        raise ExportError(
            "config['strict']",
            f"is True, which the engine can't do for {spec.export_format}: Dynamo refuses the"
            " engine's own wrapper of the outputs",
            "Remove it",
        )
