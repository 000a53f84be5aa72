"""The keys of `config`, as the engine's guide documents them, and their check."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Dict, Iterable, Mapping, Tuple

from model_export.plugin.field_errors import SpecError, nearest, require_mapping
from model_export.plugin.shape_checks import check_dynamic_shapes
from model_export.spec import FORMATS


@dataclass(frozen=True)
class ConfigKey:
    """One key of `config`: its type, the engine's or our default, and the formats that have it."""

    name: str
    kind: str  # "bool", "int", "str" or "dynamic_shapes"
    default: Any
    help: str
    formats: Tuple[str, ...] = FORMATS
    choices: Tuple[str, ...] = ()


# The backends say why (`strict_mode.py`, `onnx/backend.py`), and check again.
_WITHOUT_STRICT = ("onnx", "openvino")
LOWEST_OPSET = 18
HIGHEST_OPSET = 25

CONFIG_KEYS: Mapping[str, ConfigKey] = MappingProxyType(
    {
        key.name: key
        for key in (
            ConfigKey("dynamic", "bool", False, "Make every dimension of every input dynamic."),
            ConfigKey("strict", "bool", False, "Trace with Dynamo, in torch.export's strict mode."),
            ConfigKey(
                "dynamic_shapes",
                "dynamic_shapes",
                None,
                "Input name -> {axis: dimension}; takes precedence over `dynamic`. A dimension is "
                "a name (bounds from the target's `dims`), 'AUTO' or 'STATIC'.",
            ),
            ConfigKey(
                "prefer_deferred_runtime_asserts_over_guards",
                "bool",
                False,
                "Turn shape guards that can't be proved into runtime asserts; most language models "
                "need it with bounded dimensions.",
            ),
            ConfigKey(
                "opset_version",
                "int",
                None,
                "ONNX opset, 18 to 25; None: the engine's own, 20, or 21 for NNCF's four bits.",
                ("onnx",),
            ),
            ConfigKey("optimize", "bool", True, "Run onnxscript's optimiser.", ("onnx",)),
            ConfigKey(
                "ort_fusions",
                "str",
                None,
                "Fuse into ONNX Runtime's own operators for this execution provider.",
                ("onnx",),
                ("cpu", "cuda", "webgpu", "dml"),
            ),
            ConfigKey(
                "external_data",
                "bool",
                True,
                "Keep weights beside the graph, in a file that all components share.",
                ("onnx",),
            ),
            ConfigKey("export_params", "bool", True, "Write the weights at all.", ("onnx",)),
            ConfigKey(
                "keep_initializers_as_inputs",
                "bool",
                False,
                "List the weights among the graph's inputs, so that a caller can replace them.",
                ("onnx",),
            ),
            ConfigKey(
                "backend",
                "str",
                "xnnpack",
                "Delegate.",
                ("executorch",),
                ("xnnpack", "cuda", "mlx"),
            ),
            ConfigKey(
                "alloc_graph_input", "bool", True, "Plan memory for inputs.", ("executorch",)
            ),
            ConfigKey(
                "alloc_graph_output", "bool", True, "Plan memory for outputs.", ("executorch",)
            ),
            ConfigKey(
                "alloc_mutable_buffers",
                "bool",
                True,
                "Plan memory for mutable buffers.",
                ("executorch",),
            ),
            ConfigKey(
                "compress_to_fp16",
                "bool",
                False,
                "Store float32 weights as float16. Off unless asked for: it changes results.",
                ("openvino",),
            ),
            ConfigKey(
                "stateful", "bool", True, "Keep caches in variables of the graph.", ("openvino",)
            ),
        )
    }
)

# Keys that the engine's guide has and that mean nothing in a build, with what to do instead.
REFUSED_CONFIG_KEYS: Mapping[str, Tuple[str, str]] = MappingProxyType(
    {
        "output_path": (
            "has no meaning in a build: the artifact goes to the package's output folder",
            "Remove it, or set the target's own `output_path` field",
        ),
        "quantizer": (
            "takes an object of the engine, which a BUILD file can't hold",
            'Write it as the target\'s own field: `quantizer={"type": ...}`',
        ),
    }
)


# What other exporters call these keys.
_CONFIG_ALIASES: Mapping[str, str] = MappingProxyType(
    {
        "dynamic_axes": "dynamic_shapes",
        "dynamic_dims": "dynamic_shapes",
        "opset": "opset_version",
        "target_opset": "opset_version",
        "fp16": "compress_to_fp16",
        "half": "compress_to_fp16",
        "delegate": "backend",
        "use_external_data_format": "external_data",
    }
)

_FORMAT_ALIASES: Mapping[str, str] = MappingProxyType(
    {
        "pt2": "dynamo",
        "torch_export": "dynamo",
        "torch": "dynamo",
        "pte": "executorch",
        "et": "executorch",
        "ort": "onnx",
        "onnxruntime": "onnx",
        "ov": "openvino",
        "ir": "openvino",
    }
)

_CHOICE_ALIASES: Mapping[str, str] = MappingProxyType(
    {"gpu": "cuda", "directml": "dml", "x86": "cpu", "metal": "mlx"}
)


def check_config(config: object) -> Tuple[str, Dict[str, Any]]:
    """Check a target's `config`; return the format and every key of it with its value.

    Raises SpecError for an unknown or missing format, a key of another format, an unknown key, a
    wrong type or an unknown choice.
    """
    given = require_mapping("config", config, "a dict like {'export_format': 'onnx'}")
    export_format = given.get("export_format")
    if export_format is None:
        raise SpecError(
            "config", "has no 'export_format'", f"Add one of {', '.join(map(repr, FORMATS))}"
        )
    if export_format not in FORMATS:
        raise SpecError(
            "config['export_format']",
            f"is {export_format!r}, which is no export format",
            nearest(str(export_format), FORMATS, _FORMAT_ALIASES),
        )
    own = {name: key for name, key in CONFIG_KEYS.items() if export_format in key.formats}
    for name, value in given.items():
        if name == "export_format":
            continue
        path = _check_key(name, f"{export_format}'s config", own)
        if name not in own:
            owners = " and ".join(CONFIG_KEYS[name].formats)
            raise SpecError(
                path,
                f"belongs to {owners}, not to {export_format}",
                "Remove it or change the format",
            )
        _check_config_value(path, own[name], value)
    checked = {name: given.get(name, key.default) for name, key in sorted(own.items())}
    if checked.get("dynamic_shapes") is not None:
        checked["dynamic_shapes"] = check_dynamic_shapes(checked["dynamic_shapes"])
    if checked.get("ort_fusions") and not checked["optimize"]:
        raise SpecError(
            "config['ort_fusions']",
            "needs optimize=True",
            "Remove 'optimize': False or the fusions",
        )
    if checked["strict"] and export_format in _WITHOUT_STRICT:
        raise SpecError(
            "config['strict']",
            f"is True, which the engine can't do for {export_format}",
            "Remove it",
        )
    opset = checked.get("opset_version")
    if opset is not None and not LOWEST_OPSET <= opset <= HIGHEST_OPSET:
        raise SpecError(
            "config['opset_version']",
            f"is {opset}, which the engine doesn't write",
            f"Choose one from {LOWEST_OPSET} to {HIGHEST_OPSET}",
        )
    return str(export_format), checked


def check_config_part(config: object) -> None:
    """Check a `config` whose `export_format` a recipe may have; raises SpecError as `check_config`.

    Without a format, a key may be of any.
    """
    given = require_mapping("config", config, "a dict like {'export_format': 'onnx'}")
    if "export_format" in given:
        check_config(given)
        return
    for name, value in given.items():
        path = _check_key(name, "any format's config", CONFIG_KEYS)
        _check_config_value(path, CONFIG_KEYS[name], value)
        if name == "dynamic_shapes" and value is not None:
            check_dynamic_shapes(value)


def _check_key(name: str, whose: str, known: Iterable[str]) -> str:
    """The path of a key for errors; raises SpecError for one that no config may have."""
    path = f"config[{name!r}]"
    if name in REFUSED_CONFIG_KEYS:
        raise SpecError(path, *REFUSED_CONFIG_KEYS[name])
    if name not in CONFIG_KEYS:
        raise SpecError(
            path,
            f"is no key of {whose}",
            nearest(name, ("export_format", *known), _CONFIG_ALIASES),
        )
    return path


_KINDS: Mapping[str, str] = MappingProxyType(
    {
        "bool": "True or False",
        "int": "an int",
        "str": "a string",
        "dynamic_shapes": "a dict of input name -> {axis: dimension}",
    }
)


def _check_config_value(path: str, key: ConfigKey, value: object) -> None:
    if value is None and key.default is None:
        return
    expected = {"bool": bool, "int": int, "str": str, "dynamic_shapes": Mapping}[key.kind]
    wrong_bool = key.kind == "int" and isinstance(value, bool)
    if not isinstance(value, expected) or wrong_bool:
        raise SpecError(path, f"must be {_KINDS[key.kind]}, not {value!r}", _remedy(key))
    if key.choices and value not in key.choices:
        raise SpecError(
            path,
            f"is {value!r}, which is no choice",
            nearest(str(value), key.choices, _CHOICE_ALIASES),
        )
    if key.name == "opset_version" and isinstance(value, int) and value < 1:
        raise SpecError(path, f"is {value}", "Write an ONNX opset such as 18, or remove it")


def _remedy(key: ConfigKey) -> str:
    """What the key is for, as the last sentence of an error."""
    text = " ".join(key.help.split()).rstrip(".")
    return f"It says: {text[0].lower()}{text[1:]}"
