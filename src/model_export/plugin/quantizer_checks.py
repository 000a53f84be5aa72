"""The check of `quantizer`: known names, types, and combinations that a backend can build."""

from __future__ import annotations

import math
from typing import Any, Dict, Mapping, Tuple

from model_export.plugin.field_errors import SpecError, nearest, require_mapping
from model_export.plugin.generation_checks import check_component_name, plain_json
from model_export.quantizer_table import (
    ENUMS,
    EXTRA_OPTIONS,
    LEFT_OUT,
    OBJECTS,
    QUANTIZERS,
    SETTINGS,
    QuantizerType,
)

# What design notes and other tools call the engine's classes.
_TYPE_ALIASES: Mapping[str, str] = {
    "onnxruntime": "OnnxRuntimeQuantizer",
    "onnxruntime_static": "OnnxRuntimeQuantizer",
    "onnxruntime_dynamic": "OnnxRuntimeQuantizer",
    "ort": "OnnxRuntimeQuantizer",
    "pt2e": "PT2EQuantizer",
    "nncf": "NNCFOnnxQuantizer",
    "nncf_onnx": "NNCFOnnxQuantizer",
    "nncf_openvino": "NNCFOpenVINOQuantizer",
    "nncf_torchfx": "NNCFTorchFXQuantizer",
    "onnxruntimestaticconfig": "OnnxRuntimeQuantizer",
    "onnxruntimedynamicconfig": "OnnxRuntimeQuantizer",
    "xnnpackquantizer": "PT2EQuantizer",
    "x86inductorquantizer": "PT2EQuantizer",
}
_CLASS_ALIASES: Mapping[str, str] = {
    "static": "OnnxRuntimeStaticConfig",
    "dynamic": "OnnxRuntimeDynamicConfig",
    "int8": "NNCFQuantizationConfig",
    "weights": "NNCFWeightCompressionConfig",
    "x86": "X86InductorQuantizer",
    "x86_inductor": "X86InductorQuantizer",
    "xnnpack": "XNNPACKQuantizer",
}
_EXAMPLE = '{"type": "OnnxRuntimeQuantizer", "config": "OnnxRuntimeDynamicConfig"}'


def check_quantizer(value: object, custom: bool = False) -> Dict[str, Any]:
    """Check a target's `quantizer`: one for all components, or one each by the component's name.

    Returns it with the class of its settings written out. `custom` is as in
    `check_component_name`. Raises SpecError for an unknown type,
    class, setting, enum value or component, and for a wrong type. Whether the export's format
    has it is for `check_combination`.
    """
    given = require_mapping("quantizer", value, f"a dict like {_EXAMPLE}")
    if not given:
        raise SpecError("quantizer", "is empty", f"Remove it, or write {_EXAMPLE}")
    if "type" in given:
        return _check_one("quantizer", given)
    checked = {}
    for name, quantizer in sorted(given.items()):
        path = f"quantizer[{name!r}]"
        if name != "model" and not isinstance(quantizer, Mapping):
            raise SpecError("quantizer", "has no 'type'", f"Write {_EXAMPLE}")
        if name != "model":
            check_component_name(path, name, "is neither 'type' nor a component", custom)
        one = require_mapping(path, quantizer, f"a dict like {_EXAMPLE}")
        if "type" not in one:
            raise SpecError(path, "has no 'type'", f"Write {_EXAMPLE}")
        checked[name] = _check_one(path, one)
    return checked


def _check_one(path: str, given: Mapping[str, Any]) -> Dict[str, Any]:
    kind, quantizer = _type_of(path, given["type"])
    class_name = given.get(quantizer.key, quantizer.classes[0])
    if class_name not in quantizer.classes:
        raise SpecError(
            f"{path}[{quantizer.key!r}]",
            f"is {class_name!r}, which {kind} doesn't take",
            nearest(str(class_name), quantizer.classes, _CLASS_ALIASES),
        )
    checked: Dict[str, Any] = {"type": kind, quantizer.key: class_name}
    settings = SETTINGS[class_name]
    for name, value in given.items():
        if name in ("type", quantizer.key):
            continue
        at = f"{path}[{name!r}]"
        if name == "calibration_dataset":
            raise SpecError(
                at,
                "takes samples in memory",
                'Set the target\'s `calibration={"files": [...]}`, or leave it out',
            )
        if name not in settings:
            raise SpecError(
                at,
                f"is no setting of {class_name}{_owner(name, quantizer)}",
                nearest(name, ("type", quantizer.key, *settings)),
            )
        checked[name] = _check_value(at, settings[name], value, class_name)
    if class_name == "NNCFWeightCompressionConfig":
        checked.setdefault("mode", "INT8_ASYM")
    _check_settings(path, class_name, checked)
    return checked


def _type_of(path: str, kind: object) -> Tuple[str, QuantizerType]:
    if not isinstance(kind, str) or kind not in QUANTIZERS:
        raise SpecError(
            f"{path}['type']",
            f"is {kind!r}, which is no quantizer",
            nearest(str(kind), QUANTIZERS, _TYPE_ALIASES),
        )
    return kind, QUANTIZERS[kind]


def _owner(name: str, quantizer: QuantizerType) -> str:
    owners = [other for other in quantizer.classes if name in SETTINGS[other]]
    return f", but of {owners[0]}" if owners else ""


def _check_value(path: str, kind: str, value: object, class_name: str) -> Any:
    word, _, name = kind.partition(" ")
    if word == "enum":
        if value not in ENUMS[name]:
            raise SpecError(
                path, f"is {value!r}, which {name} doesn't have", nearest(str(value), ENUMS[name])
            )
        return value
    if word == "object":
        return _check_object(path, name, value)
    if word == "objects":
        items = _list(path, value)
        return [_check_object(f"{path}[{i}]", name, item) for i, item in enumerate(items)]
    if word == "strings":
        strings = _list(path, value)
        if not all(isinstance(item, str) and item for item in strings):
            raise SpecError(path, f"must be a list of strings, not {value!r}", "Write ['...']")
        return strings
    if word == "numbers":
        numbers = _list(path, value)
        if not all(_number(item) for item in numbers):
            raise SpecError(path, f"must be a list of numbers, not {value!r}", "Write [0.0, 1.0]")
        return numbers
    if word == "extra_options":
        return _check_extra_options(path, class_name, value)
    if word == "options":
        return plain_json(path, require_mapping(path, value, "a dict"))
    return _check_scalar(path, word, value)


def _check_scalar(path: str, word: str, value: object) -> Any:
    if word == "bool":
        if not isinstance(value, bool):
            raise SpecError(path, f"must be True or False, not {value!r}", "Write one of the two")
        return value
    if not _number(value) or (word == "int" and not isinstance(value, int)):
        wanted = "an int" if word == "int" else "a number"
        raise SpecError(path, f"must be {wanted}, not {value!r}", "Write one, without quotes")
    return value


def _check_object(path: str, class_name: str, value: object) -> Dict[str, Any]:
    fields = OBJECTS[class_name]
    checked = {}
    for name, item in require_mapping(path, value, f"a dict of {class_name}'s fields").items():
        at = f"{path}[{name!r}]"
        if name in LEFT_OUT.get(class_name, ()):
            raise SpecError(
                at, "is a folder of this machine, which a build doesn't have", "Remove it"
            )
        if name not in fields:
            raise SpecError(at, f"is no field of {class_name}", nearest(name, fields))
        checked[name] = _check_value(at, fields[name], item, class_name)
    if (
        class_name == "QuantizationParameters"
        and "destination_type" in checked
        and checked.keys() != {"destination_type"}
    ):
        raise SpecError(path, "mixes FP8's destination_type with int settings", "Keep one kind")
    return checked


def _check_extra_options(path: str, class_name: str, value: object) -> Dict[str, Any]:
    known = EXTRA_OPTIONS[class_name]
    checked = {}
    for name, item in require_mapping(path, value, "a dict").items():
        at = f"{path}[{name!r}]"
        if name.startswith("SmoothQuant"):
            raise SpecError(
                at, "needs the package neural-compressor, which no resolve pins", "Remove it"
            )
        if name not in known:
            raise SpecError(at, f"is no extra option of {class_name}", nearest(name, known))
        checked[name] = _check_value(at, known[name], item, class_name)
    for tensor, overrides in checked.get("TensorQuantOverrides", {}).items():
        for override in _list(f"{path}['TensorQuantOverrides'][{tensor!r}]", overrides):
            kind = override.get("quant_type") if isinstance(override, Mapping) else None
            if kind is not None and kind not in ENUMS["QuantType"]:
                raise SpecError(
                    f"{path}['TensorQuantOverrides'][{tensor!r}]",
                    f"has the quant_type {kind!r}",
                    nearest(str(kind), ENUMS["QuantType"]),
                )
    return checked


def _list(path: str, value: object) -> Any:
    if isinstance(value, str) or not isinstance(value, (list, tuple)):
        raise SpecError(path, f"must be a list, not {value!r}", "Write [...]")
    return list(value)


def _number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return math.isfinite(value)


def _check_settings(path: str, class_name: str, checked: Mapping[str, Any]) -> None:
    """Settings of one quantizer that exclude each other, whatever the format."""
    if checked.get("is_qat"):
        raise SpecError(f"{path}['is_qat']", "is True, and an export doesn't train", "Remove it")
    size = checked.get("subset_size")
    if size is not None and size < 1:
        raise SpecError(f"{path}['subset_size']", f"is {size}", "Write a positive int")
    ratio = checked.get("ratio")
    if ratio is not None and not 0 <= ratio <= 1:
        raise SpecError(f"{path}['ratio']", f"is {ratio}", "Write a share from 0 to 1")
    if class_name == "NNCFWeightCompressionConfig" and checked["mode"].startswith("INT8"):
        _check_int8_weights(path, checked)
    if class_name == "OnnxRuntimeStaticConfig":
        activation = checked.get("activation_type", "QInt8")
        if activation == "QInt8" and checked.get("weight_type") == "QUInt8":
            raise SpecError(
                f"{path}['weight_type']",
                "is 'QUInt8' under activations of QInt8, which ONNX Runtime doesn't have",
                "Add activation_type='QUInt8'",
            )
        for setting in ("activation_type", "weight_type"):
            float8 = checked.get(setting) == "QFLOAT8E4M3FN"
            if float8 and checked.get("calibrate_method") != "Distribution":
                raise SpecError(
                    f"{path}[{setting!r}]",
                    "is 'QFLOAT8E4M3FN', which needs calibrate_method='Distribution'",
                    "Add it, or take an int type",
                )


# What NNCF 3.4.0 refuses for its INT8 modes, after the model is converted.
_NOT_FOR_INT8 = (
    "all_layers",
    "sensitivity_metric",
    "awq",
    "scale_estimation",
    "gptq",
    "lora_correction",
    "backup_mode",
)


def _check_int8_weights(path: str, checked: Mapping[str, Any]) -> None:
    for setting in _NOT_FOR_INT8:
        if setting in checked:
            raise SpecError(
                f"{path}[{setting!r}]",
                f"has no meaning for the mode {checked['mode']}",
                "Remove it, or take an INT4 mode",
            )
    for setting, only in (("ratio", 1), ("group_size", -1)):
        if checked.get(setting, only) != only:
            raise SpecError(
                f"{path}[{setting!r}]",
                f"is {checked[setting]}, but {checked['mode']} takes all weights by channel",
                "Remove it, or take an INT4 mode",
            )
