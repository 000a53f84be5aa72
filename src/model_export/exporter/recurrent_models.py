"""What can't be exported of models that carry a state: refused here, before anything is traced."""

from __future__ import annotations

from transformers import PreTrainedModel

from model_export.exporter.errors import ExportError
from model_export.spec import ExportSpec

# Their forward pass is a Python loop over the sequence, where the CUDA kernels aren't installed.
_UNROLLED = ("falcon_mamba", "mamba")


def check_sizes(model: PreTrainedModel, spec: ExportSpec) -> None:
    """Raise ExportError if a size is to be dynamic that the engine would freeze without a word."""
    if spec.config.get("dynamic_shapes") is not None or not spec.config.get("dynamic"):
        return
    name = type(model).__name__
    if model.config.model_type in _UNROLLED and not spec.for_generation:
        raise ExportError(
            "config['dynamic']",
            f"is True, but {name} runs a loop over its sequence, whose length a trace fixes "
            "(transformers 5.24.0)",
            "Set for_generation=True, whose decode graph takes a text token by token, or leave "
            "`dynamic` out for texts of the sample's length",
        )
    if model.config.model_type in _UNROLLED and spec.export_format == "executorch":
        raise ExportError(
            "config['dynamic']",
            f"is True, but the batch of {name} gets fixed when ExecuTorch lowers it "
            "(transformers 5.24.0, executorch 1.3.1)",
            "Leave it out for batches of the sample's size, or take another format",
        )
