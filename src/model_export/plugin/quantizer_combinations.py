"""Which quantizers an export can have: by format, by what else the target says.

What a combination is refused for is measured: the backends' tests try each, and fail once the
engine can do it.
"""

from __future__ import annotations

from typing import Any, Dict, Iterator, Mapping, Optional, Tuple

from model_export.plugin.field_errors import SpecError
from model_export.quantizer_table import (
    FOUR_BIT_OPSET,
    QUANTIZERS,
    has_four_bits,
    is_calibrated,
    settings_class,
)
from model_export.spec import ExportSpec

_WEIGHTS = "NNCFWeightCompressionConfig"
# The `mode`s of NNCF 3.4.0's weight compression that its other backends refuse.
_OPENVINO_MODES = (
    "NF4",
    "CB4",
    "MXFP4",
    "MXFP8_E4M3",
    "FP8_E4M3",
    "FP4",
    "NVFP4",
    "CODEBOOK",
    "ADAPTIVE_CODEBOOK",
)
_OPENVINO_ONLY = ("gptq", "lora_correction")

_Refusal = Tuple[str, str, str]  # The setting, the problem, the remedy.


def check_combination(spec: ExportSpec) -> None:
    """Raise SpecError if the format, or another field, doesn't go with the quantizer."""
    if spec.quantizer is None:
        if spec.calibration is not None:
            raise SpecError("calibration", "has no effect without a quantizer", "Remove it")
        return
    if spec.dtype != "float32":
        raise SpecError(
            "dtype",
            f"is {spec.dtype!r} with a quantizer, and quantizers start from float32",
            "Remove it",
        )
    quantizers = _by_component(spec.quantizer)
    for component, quantizer in quantizers.items():
        path = "quantizer" if component is None else f"quantizer[{component!r}]"
        _check_format(path, quantizer, spec)
        for field, value in _values("export_params", spec, component):
            if value is False:
                raise SpecError(
                    field,
                    "is False, which leaves out what a quantizer makes",
                    "Remove it, or the quantizer",
                )
        for field, value in _values("opset_version", spec, component):
            if value is not None and value < FOUR_BIT_OPSET and has_four_bits(quantizer):
                raise SpecError(
                    field,
                    f"is {value}, where the products of weights with four bits that nncf 3.4.0 "
                    "makes are wrong",
                    f"Write {FOUR_BIT_OPSET} or more, or remove it",
                )
        for setting, problem, remedy in _refusals(quantizer, spec, component):
            raise SpecError(f"{path}[{setting!r}]" if setting else path, problem, remedy)
    _check_components(spec)
    if spec.calibration is not None and not any(map(is_calibrated, quantizers.values())):
        raise SpecError(
            "calibration", "has no effect: this quantizer doesn't observe the model", "Remove it"
        )


def _by_component(quantizer: Mapping[str, Any]) -> Dict[Optional[str], Mapping[str, Any]]:
    """Each quantizer under the component that it is for; None for one that is for all."""
    if "type" in quantizer:
        return {None: quantizer}
    return {name: quantizer[name] for name in quantizer}


def _values(key: str, spec: ExportSpec, component: Optional[str]) -> Iterator[Tuple[str, Any]]:
    """What `config` has for `key` in a component, or in all, with the field that says so."""
    if component is None:
        yield f"config[{key!r}]", spec.config.get(key)
    for name in spec.component_config if component is None else (component,):
        own = key in spec.component_config.get(name, {})
        field = f"component_config[{name!r}][{key!r}]" if own else f"config[{key!r}]"
        yield field, spec.for_component(name).config.get(key)


def _check_format(path: str, quantizer: Mapping[str, Any], spec: ExportSpec) -> None:
    kind = quantizer["type"]
    if spec.export_format in QUANTIZERS[kind].formats:
        return
    others = [name for name, item in QUANTIZERS.items() if spec.export_format in item.formats]
    raise SpecError(
        f"{path}['type']",
        f"is {kind!r}, which quantizes {' and '.join(QUANTIZERS[kind].formats)}, not "
        f"{spec.export_format}",
        f"Take {' or '.join(others)}",
    )


def _check_components(spec: ExportSpec) -> None:
    if spec.quantizer is None or "type" in spec.quantizer:
        return
    known: Optional[Tuple[str, ...]] = ("model",)
    if spec.for_generation or spec.inputs_from is not None:
        known = spec.components
    for name in spec.quantizer:
        if name == "model" and spec.for_generation and spec.inputs_from is None:
            raise SpecError(
                "quantizer['model']",
                "is no component of an export for generation",
                "Name 'decode' or 'prefill'",
            )
        if known is not None and name not in known:
            raise SpecError(
                f"quantizer[{name!r}]",
                "is no component of this export",
                f"It builds {', '.join(known)}",
            )


def _refusals(
    quantizer: Mapping[str, Any], spec: ExportSpec, component: Optional[str]
) -> Iterator[_Refusal]:
    kind, export_format = quantizer["type"], spec.export_format
    traced = kind in ("PT2EQuantizer", "NNCFTorchFXQuantizer")
    for field, value in _values("ort_fusions", spec, component) if traced else ():
        if value:
            yield (
                "type",
                f"is {kind!r}, after which the engine leaves out {field}",
                "Remove the fusions, or take OnnxRuntimeQuantizer",
            )
    if kind == "PT2EQuantizer":
        yield from _pt2e_refusals(quantizer, export_format, spec.for_generation)
    elif kind == "OnnxRuntimeQuantizer":
        yield from _onnxruntime_refusals(quantizer)
    elif settings_class(quantizer) == _WEIGHTS:
        yield from _weight_refusals(quantizer, export_format)
    else:
        yield from _nncf_refusals(quantizer)


def _pt2e_refusals(
    quantizer: Mapping[str, Any], export_format: str, for_generation: bool
) -> Iterator[_Refusal]:
    name = quantizer["quantizer"]
    wanted = "XNNPACKQuantizer" if export_format == "executorch" else "X86InductorQuantizer"
    if name != wanted:
        yield (
            "quantizer",
            f"is {name!r}, whose operators {export_format} doesn't run",
            f"Take {wanted!r}",
        )
    if export_format == "executorch" and for_generation and not quantizer.get("is_dynamic"):
        yield (
            "quantizer",
            "quantizes a decoder to static ranges, which ends executorch 1.3.1's runtime: "
            "`double free`",
            "Add is_dynamic=True and is_per_channel=True",
        )
    per_tensor = not quantizer.get("is_per_channel", False)
    if quantizer.get("is_dynamic") and export_format == "executorch" and per_tensor:
        yield (
            "is_dynamic",
            "is True, and XNNPACK multiplies ranges of each call with weights by channel only",
            "Add is_per_channel=True",
        )
    if quantizer.get("is_dynamic") and export_format == "onnx":
        yield (
            "is_dynamic",
            "is True, and torch 2.12.0 has no ONNX for `choose_qparams`",
            'Take {"type": "OnnxRuntimeQuantizer", "config": "OnnxRuntimeDynamicConfig"}',
        )
    if quantizer.get("is_dynamic") and export_format == "openvino":
        yield (
            "is_dynamic",
            "is True, and OpenVINO 2026.3.1 doesn't convert `choose_qparams`",
            "Remove it, or take NNCFOpenVINOQuantizer",
        )


def _onnxruntime_refusals(quantizer: Mapping[str, Any]) -> Iterator[_Refusal]:
    for provider in quantizer.get("calibration_providers", ()):
        if provider != "CPUExecutionProvider":
            yield (
                "calibration_providers",
                f"has {provider!r}, which the locked onnxruntime doesn't have",
                "Remove it",
            )


def _weight_refusals(quantizer: Mapping[str, Any], export_format: str) -> Iterator[_Refusal]:
    if quantizer.get("compression_format", "DQ") != "DQ":
        yield (
            "compression_format",
            f"is {quantizer['compression_format']!r}, which is for training",
            "Remove it, or write 'DQ'",
        )
    if quantizer["type"] == "NNCFOpenVINOQuantizer":
        return
    if export_format == "openvino" and not quantizer["mode"].startswith("INT8"):
        yield (
            "mode",
            f"is {quantizer['mode']!r}, whose operators of NNCF's own OpenVINO 2026.3.1 doesn't "
            "convert",
            "Take NNCFOpenVINOQuantizer",
        )
    if export_format == "executorch" and not quantizer["mode"].startswith("INT8"):
        yield (
            "mode",
            f"is {quantizer['mode']!r}, whose weights NNCF unpacks by a shift that executorch "
            "1.3.1 doesn't have",
            "Take an INT8 mode, or PT2EQuantizer",
        )
    if quantizer["mode"] in _OPENVINO_MODES:
        yield (
            "mode",
            f"is {quantizer['mode']!r}, which NNCF has for OpenVINO only",
            "Take an INT8 or INT4 mode, or export to openvino with NNCFOpenVINOQuantizer",
        )
    for setting in _OPENVINO_ONLY:
        if setting in quantizer:
            yield (
                setting,
                "belongs to NNCFOpenVINOQuantizer",
                "Remove it, or export to openvino",
            )


def _nncf_refusals(quantizer: Mapping[str, Any]) -> Iterator[_Refusal]:
    if quantizer["type"] == "NNCFTorchFXQuantizer":
        yield (
            "config",
            "is 'NNCFQuantizationConfig', and nncf 3.4.0 fails on traced attention: it looks for "
            "keyword arguments among the positional ones",
            "Take 'NNCFWeightCompressionConfig', or PT2EQuantizer for int8 activations",
        )
    if quantizer["type"] == "NNCFOpenVINOQuantizer":
        return
    if quantizer.get("target_device") == "CPU_SPR":
        yield "target_device", "is 'CPU_SPR', which NNCF has for OpenVINO only", "Take 'CPU'"
