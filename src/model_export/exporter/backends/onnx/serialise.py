"""Writes programs as `<component>.onnx`, with the weights where the config wants them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import onnx
import onnx_ir

from model_export.exporter.backends.onnx.records import component_record
from model_export.exporter.backends.onnx.weights_file import WeightsFile
from model_export.exporter.errors import ExportError
from model_export.manifest import ComponentRecord
from model_export.spec import ExportSpec

WEIGHTS_FILE = "model.onnx.data"

# The engine's own threshold: anything up to this stays in the graph's file.
_INLINE_BYTES = 256
# A protobuf message ends here; the graph beside the weights takes its part as well.
_PROTOBUF_LIMIT = 2 * 1024**3


def write_programs(
    programs: Mapping[str, onnx_ir.Model], directory: Path, spec: ExportSpec
) -> tuple[ComponentRecord, ...]:
    """Write every program below `directory`.

    `export_params` and `keep_initializers_as_inputs` mean what they mean to
    `torch.onnx.ONNXProgram.save` (torch 2.12.0): without parameters no initializer is written at
    all, folded constants included; kept as inputs, each initializer is listed as one.

    Raises ExportError if weights that should stay in the graph's file don't fit into it.
    """
    records = []
    configs = {name: spec.for_component(name).config for name in programs}
    external = [
        name
        for name in programs
        if configs[name]["external_data"] and configs[name]["export_params"]
    ]
    with ExitStack() as stack:
        weights_file = None
        # A model of nothing but small tensors leaves no empty file behind.
        if any(_large(tensor) for name in external for tensor in _tensors(programs[name])):
            weights_file = stack.enter_context(WeightsFile(directory / WEIGHTS_FILE))
        for name, model in programs.items():
            path, config = directory / f"{name}.onnx", configs[name]
            own_file = weights_file if name in external else None
            with _initializers_as_inputs(model, config), _placed(model, own_file, config):
                if own_file is None:
                    _check_size(name, model)
                onnx_ir.save(model, path)
                weights = (WEIGHTS_FILE,) if _has_external_data(model) else ()
                records.append(component_record(name, model, spec, path.name, weights))
    for record in records:
        _check_file(directory / record.file, configs[record.name])
    return tuple(records)


@contextmanager
def _initializers_as_inputs(model: onnx_ir.Model, config: Mapping[str, Any]) -> Iterator[None]:
    if not config["keep_initializers_as_inputs"]:
        yield
        return
    inputs = list(model.graph.inputs)
    model.graph.inputs.extend(model.graph.initializers.values())
    try:
        yield
    finally:
        model.graph.inputs.clear()
        model.graph.inputs.extend(inputs)


@contextmanager
def _placed(
    model: onnx_ir.Model, weights_file: WeightsFile | None, config: Mapping[str, Any]
) -> Iterator[None]:
    """Large initializers point into `weights_file`, or all are gone, while the block runs."""
    before = [
        (graph, dict(graph.initializers), [v.const_value for v in graph.initializers.values()])
        for graph in model.graphs()
    ]
    for graph, initializers, _ in before:
        for value in initializers.values():
            if not config["export_params"]:
                value.const_value = None
            elif weights_file is not None and _large(value.const_value):
                value.const_value = weights_file.add(value.const_value)
        if not config["export_params"]:
            graph.initializers.clear()
    try:
        yield
    finally:
        for graph, initializers, tensors in before:
            for value, tensor in zip(initializers.values(), tensors, strict=True):
                value.const_value = tensor
            graph.initializers.update(initializers)


def _tensors(model: onnx_ir.Model) -> Iterator[onnx_ir.TensorProtocol]:
    for graph in model.graphs():
        for value in graph.initializers.values():
            if value.const_value is not None:
                yield value.const_value


def _large(tensor: onnx_ir.TensorProtocol | None) -> bool:
    return tensor is not None and tensor.nbytes > _INLINE_BYTES


def _has_external_data(model: onnx_ir.Model) -> bool:
    return any(isinstance(tensor, onnx_ir.ExternalTensor) for tensor in _tensors(model))


def _check_size(name: str, model: onnx_ir.Model) -> None:
    size = sum(tensor.nbytes for tensor in _tensors(model))
    if size >= _PROTOBUF_LIMIT:
        raise ExportError(
            "config['external_data']",
            f"is False, but the weights of `{name}` take {size / 1024**3:.1f} GiB and an .onnx "
            "file ends at 2 GiB",
            "Remove it",
        )


def _check_file(path: Path, config: Mapping[str, Any]) -> None:
    """Run ONNX's own checker on the file, by path, so that the weights' file is looked at too."""
    if not config["export_params"] and not config["keep_initializers_as_inputs"]:
        # Such a graph uses values that nothing defines until someone attaches the initializers.
        return
    if config["ort_fusions"]:
        # ONNX Runtime has an operator of its own among ONNX's (`SimplifiedLayerNormalization`),
        # which the checker can't know (onnx 1.21.0). The verification looks at all the others.
        return
    try:
        onnx.checker.check_model(str(path))
    except onnx.checker.ValidationError as error:
        reason = str(error).strip().splitlines()[0].rstrip(".")
        raise ExportError(
            path.name, f"is refused by ONNX's checker: {reason}", "Try another `opset_version`"
        ) from error
