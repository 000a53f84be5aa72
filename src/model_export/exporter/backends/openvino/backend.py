"""The OpenVINO backend: the export of one component, and the files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openvino
import torch
from transformers import EncoderDecoderCache

from model_export.exporter.backends.openvino.engine import export_program, write_ir
from model_export.exporter.backends.openvino.grouped_attention import share_heads
from model_export.exporter.backends.openvino.records import component_record
from model_export.exporter.backends.openvino.shared_weights import share_weights
from model_export.exporter.backends.openvino.stable_names import make_names_stable
from model_export.exporter.backends.openvino.static_axes import fix_static_axes
from model_export.exporter.components import has_dynamic_encoder
from model_export.exporter.dynamic_shapes import build_dynamic_shapes
from model_export.exporter.errors import ExportError
from model_export.exporter.mapped_weights import release_mapped_pages
from model_export.exporter.output_flags import split_flags
from model_export.exporter.quantizers.quantization import Quantization
from model_export.exporter.strict_mode import refuse_strict
from model_export.manifest import ComponentRecord
from model_export.spec import ExportSpec

SHARED_WEIGHTS_FILE = "openvino_weights.bin"


@dataclass(frozen=True)
class OpenVINOProgram:
    """A converted component, and the names that the target gives to axes of its inputs."""

    model: openvino.Model
    dimension_names: Mapping[str, Mapping[int, str]]


class OpenVINOBackend:
    """Satisfies `model_export.exporter.backend.Backend`; its programs are `OpenVINOProgram`s."""

    packages: tuple[str, ...] = ("openvino",)

    def check(self, spec: ExportSpec) -> None:
        """Raise ExportError for strict mode, and for a static cache as OpenVINO's own state.

        transformers 5.24.0, `_freeze_batchless_states`: what has no batch axis isn't made a state
        but a constant, the count of a static cache's filled positions with it.
        """
        refuse_strict(spec)
        if spec.has_static_cache and spec.config["stateful"]:
            raise ExportError(
                "config['stateful']",
                "is True, and the engine would freeze how far a static cache is filled",
                "Set it to False, or leave the cache growing",
            )

    def export(
        self,
        name: str,
        module: torch.nn.Module,
        inputs: dict[str, Any],
        spec: ExportSpec,
        quantization: Quantization | None = None,
    ) -> OpenVINOProgram:
        """Export one component; its constants share the module's memory.

        Raises ExportError for a state that would freeze the encoder's length.
        """
        if spec.config["stateful"] and has_dynamic_encoder(module, spec):
            _refuse_crossed_state(name, inputs)
        release_mapped_pages(tensor.data_ptr() for tensor in module.state_dict().values())
        inputs, flags = split_flags(module, inputs)
        shapes = build_dynamic_shapes(module, inputs, spec)
        converted = export_program(module, inputs, flags, spec.config, shapes.tree, quantization)
        fix_static_axes(converted.model, converted.shapes)
        share_heads(converted.model)
        make_names_stable(converted.model, name)
        return OpenVINOProgram(converted.model, shapes.names)

    def save(
        self, programs: Mapping[str, Any], directory: Path, spec: ExportSpec
    ) -> tuple[ComponentRecord, ...]:
        """Write `openvino_<component>.xml` each, and the weights once.

        A single component has them in the `.bin` of the same stem, which `read_model` finds by
        itself; several share `openvino_weights.bin`.
        """
        graphs = {name: directory / f"openvino_{name}.xml" for name in programs}
        for name, path in graphs.items():
            write_ir(programs[name].model, path)
        if len(graphs) == 1:
            weights = {name: path.with_suffix(".bin").name for name, path in graphs.items()}
        else:
            share_weights(tuple(graphs.values()), directory / SHARED_WEIGHTS_FILE)
            weights = dict.fromkeys(graphs, SHARED_WEIGHTS_FILE)
        return tuple(
            component_record(
                name,
                programs[name].model,
                programs[name].dimension_names,
                spec,
                path.name,
                (weights[name],),
            )
            for name, path in graphs.items()
        )


def _refuse_crossed_state(name: str, inputs: Mapping[str, Any]) -> None:
    """Raise ExportError if a cache among `inputs` holds what was made of an encoder's output.

    transformers 5.24.0, `_state_init_dims`: what doesn't grow gets the size of the sample inputs.
    """
    if any(isinstance(value, EncoderDecoderCache) for value in inputs.values()):
        raise ExportError(
            "config['stateful']",
            f"is True, and the engine would freeze the length of the encoder's output in `{name}`",
            "Set it to False",
        )
