"""Records a whole probe into a folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from model_export.exporter.components import Component
from model_export.exporter.errors import ExportError
from model_export.exporter.probe.generation_cases import record_generation_cases
from model_export.exporter.probe.graph_cases import record_graph_cases
from model_export.exporter.probe.tensors import ProbeTensors
from model_export.manifest import MultimodalRecord
from model_export.probe import PROBE_FILE, TENSORS_FILE, GraphCase, Probe
from model_export.spec import ExportSpec


def record_probe(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None,
    inputs: Mapping[str, Any],
    spec: ExportSpec,
    folder: Path,
    multimodal: MultimodalRecord | None = None,
    components: Sequence[Component] | None = None,
) -> Probe:
    """Run the eager `model` on what the artifact will be verified with; fill `folder`.

    `inputs` are the sample inputs that the graphs are traced with, `multimodal` what the manifest
    says of a model that sees or hears, `components` what `capture_components` has found with the
    inputs, if it has run. To be called before the export, which may leave the model patched.
    Raises ExportError for a component whose outputs are others at other sizes.
    """
    tensors = ProbeTensors()
    graphs = tuple(record_graph_cases(model, inputs, spec, tensors, multimodal, components))
    _check_outputs(graphs, spec)
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


def _check_outputs(graphs: Sequence[GraphCase], spec: ExportSpec) -> None:
    """Raise ExportError where which outputs there are depends on the sizes of the inputs.

    A trace has those of the sample inputs and says nothing of it: LLaVA (transformers 5.24.0) gives
    an output for each image.
    """
    traced = {case.component: set(case.outputs) for case in graphs if case.traced}
    for case in graphs:
        differing = traced[case.component] ^ set(case.outputs)
        if differing:
            config = spec.for_component(case.component).config
            key = "dynamic" if config.get("dynamic_shapes") is None else "dynamic_shapes"
            raise ExportError(
                f"config[{key!r}]",
                f"lets sizes change, and which outputs `{case.component}` has changes with them "
                f"(`{min(differing)}` at {case.name}): a trace has those of the sample inputs, one "
                "for each image or sound (transformers 5.24.0)",
                "Set for_generation=True, whose graphs take any number of them, or leave the key "
                "out for batches of the sample's size",
            )
