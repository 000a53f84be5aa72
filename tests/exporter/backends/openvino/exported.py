"""A tiny decoder, and where its graphs are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import openvino
from transformers import Qwen3ForCausalLM

from model_export.manifest import ComponentRecord

# The CPU plugin doesn't take the hint from the IR: it would compute in bfloat16 where there is AMX.
_FLOAT32 = {"INFERENCE_PRECISION_HINT": "f32"}


@dataclass(frozen=True)
class Exported:
    """The eager model, the folder of its artifact, and the records of the graphs there."""

    model: Qwen3ForCausalLM
    folder: Path
    records: dict[str, ComponentRecord]

    def read(self, component: str) -> openvino.Model:
        record = self.records[component]
        (weights,) = record.weights
        return openvino.Core().read_model(self.folder / record.file, self.folder / weights)

    def compiled(self, component: str) -> openvino.CompiledModel:
        return openvino.Core().compile_model(self.read(component), "CPU", _FLOAT32)
