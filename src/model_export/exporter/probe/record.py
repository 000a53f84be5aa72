"""Records a whole probe into a folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from model_export.exporter.probe.generation_cases import record_generation_cases
from model_export.exporter.probe.graph_cases import record_graph_cases
from model_export.exporter.probe.tensors import ProbeTensors
from model_export.manifest import MultimodalRecord
from model_export.probe import PROBE_FILE, TENSORS_FILE, Probe
from model_export.spec import ExportSpec


def record_probe(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None,
    inputs: Mapping[str, Any],
    spec: ExportSpec,
    folder: Path,
    multimodal: MultimodalRecord | None = None,
) -> Probe:
    """Run the eager `model` on what the artifact will be verified with; fill `folder`.

    `inputs` are the sample inputs that the graphs are traced with, `multimodal` what the manifest
    says of a model that sees or hears. To be called before the export, which may leave the model
    patched.
    """
    tensors = ProbeTensors()
    graphs = tuple(record_graph_cases(model, inputs, spec, tensors, multimodal))
    generations = (
        tuple(record_generation_cases(model, tokenizer, inputs, spec, graphs, tensors, multimodal))
        if spec.for_generation
        else ()
    )
    probe = Probe(graphs, generations)
    folder.mkdir(parents=True, exist_ok=True)
    tensors.write(folder / TENSORS_FILE)
    (folder / PROBE_FILE).write_text(probe.to_json(), encoding="utf-8")
    return probe
