"""One export from request to artifact."""

from __future__ import annotations

import sys
import time
from contextlib import nullcontext
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

from model_export.exporter import hermetic
from model_export.exporter.adapters import merge_adapter
from model_export.exporter.backend import Backend, load_backend
from model_export.exporter.checkpoint import (
    copy_companions,
    load_config,
    load_model,
    load_tokenizer,
    open_checkpoint,
)
from model_export.exporter.component_config import (
    check_component_names,
    check_every_config,
    own_config,
)
from model_export.exporter.components import (
    Component,
    blanked,
    capture_stages,
    choose_components,
)
from model_export.exporter.dynamic_shapes import check_input_names
from model_export.exporter.errors import ExportError
from model_export.exporter.leaks import build_paths, check_no_leak
from model_export.exporter.merge_rule import find_merge_rule
from model_export.exporter.probe import record_probe
from model_export.exporter.quantizers.plan import plan_quantization, record_calibration
from model_export.exporter.quantizers.quantization import Quantization, quantizer_packages
from model_export.exporter.sample_media import read_sample_media
from model_export.exporter.samples import build_sample_inputs
from model_export.manifest import (
    MANIFEST_FILE,
    CheckpointRecord,
    FileRecord,
    Manifest,
    record_files,
)
from model_export.recipe import RECIPE_FILE, recipe_text
from model_export.spec import (
    ADAPTER_FOLDER,
    CALIBRATION_FOLDER,
    SAMPLES_FOLDER,
    CheckpointOrigin,
    ExportRequest,
    ExportSpec,
)

# Recorded for every format; a backend adds its own.
_COMMON_PACKAGES = ("torch", "transformers")


def run_export(request: ExportRequest, folder: Path, artifact: Path, probe: Path) -> Manifest:
    """Export the checkpoint in `folder` as `request` says; fill `artifact`, return its manifest.

    `probe` is filled with what the eager model says, for the verifier.

    Raises ExportError, with the field or file at fault, when that can't be done.
    """
    spec = request.spec
    backend = load_backend(spec.export_format)
    check_every_config(backend, spec)
    checkpoint = open_checkpoint(folder, request.checkpoint, spec.architecture)
    config, replaced_attention = load_config(checkpoint)
    for part, named in replaced_attention.items():
        where = f"config.json: {part}" if part else "config.json"
        print(f"{where} asks for {named}: exported with the default attention", file=sys.stderr)
    hermetic.seed()
    with _step("load the model"):
        model = load_model(checkpoint, spec.dtype, config)
        tokenizer = load_tokenizer(checkpoint)
    adapter = Path(ADAPTER_FOLDER)
    if request.adapter is not None:
        with _step("merge the adapter"):
            model = merge_adapter(model, adapter)
    with _step("find the components"):
        media = read_sample_media(checkpoint, spec, Path(SAMPLES_FOLDER))
        inputs = build_sample_inputs(model, tokenizer, spec, media)
        stages = capture_stages(model, inputs, spec)
        components = choose_components(stages, model, spec)
        check_component_names(spec, [component.name for component in components])
        check_input_names(spec, {part.name: part.inputs for part in components})
        multimodal = find_merge_rule(model, inputs, spec, stages)
    calibration = Path(CALIBRATION_FOLDER)
    with _step("calibrate") if spec.calibration else nullcontext():
        plan = plan_quantization(
            model, tokenizer, inputs, components, spec, calibration, checkpoint
        )
    with _step("record the probe"):
        record_probe(model, tokenizer, inputs, spec, probe, multimodal, components)
    programs = {}
    for component in blanked(components):
        with _step(f"export {component.name}"):
            programs[component.name] = _export(backend, component, spec, plan.get(component.name))
    artifact.mkdir(parents=True, exist_ok=True)
    with _step("write the artifact"):
        records = backend.save(programs, artifact, spec)
        copy_companions(checkpoint, artifact)
        if spec.inputs_from is None:
            (artifact / RECIPE_FILE).write_text(recipe_text(spec), encoding="utf-8")
        check_no_leak(artifact, build_paths(Path.cwd(), folder.resolve()))
        manifest = Manifest(
            export_format=spec.export_format,
            checkpoint=CheckpointRecord(
                request.checkpoint.source, request.checkpoint.identity, checkpoint.files
            ),
            spec=asdict(spec),
            lock={
                "resolve": request.toolchain.resolve,
                "sha256": request.toolchain.lock_sha256,
            },
            engine={
                name: metadata.version(name)
                for name in (
                    *_COMMON_PACKAGES,
                    *backend.packages,
                    *quantizer_packages(spec),
                    *(("peft",) if request.adapter else ()),
                )
            },
            components=records,
            files=record_files(artifact),
            inputs_file=None if spec.inputs_from is None else FileRecord.of(spec.inputs_from),
            calibration=record_calibration(spec, plan, calibration),
            adapter=_record_adapter(request.adapter, adapter),
            multimodal=multimodal if spec.for_generation else None,
            replaced_attention=replaced_attention,
        )
        (artifact / MANIFEST_FILE).write_text(manifest.to_json(), encoding="utf-8")
    return manifest


def _record_adapter(origin: CheckpointOrigin | None, folder: Path) -> CheckpointRecord | None:
    if origin is None:
        return None
    return CheckpointRecord(origin.source, origin.identity, record_files(folder))


def _export(
    backend: Backend,
    component: Component,
    spec: ExportSpec,
    quantization: Quantization | None,
) -> Any:
    try:
        with own_config(spec, component.name) as own:
            return backend.export(
                component.name, component.module, component.inputs, own, quantization
            )
    except ExportError:
        raise
    except Exception as error:
        raise ExportError(
            component.name,
            f"can't be exported to {spec.export_format}: {_first_line(error)}",
            "The engine's own error is above",
        ) from error


def _first_line(error: BaseException) -> str:
    """`Type: first line` of the innermost cause, without its full stop."""
    while error.__cause__ is not None:
        error = error.__cause__
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0].rstrip('.')}" if text else type(error).__name__


class _step:
    """Says on stderr what is done, and afterwards how long it took."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        self._start = time.monotonic()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            seconds = time.monotonic() - self._start
            print(f"{self._what}: {seconds:.1f} s", file=sys.stderr, flush=True)
