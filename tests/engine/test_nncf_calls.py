"""Every setting of NNCF's configs is an argument of the call that NNCF gets, and nothing else is.

The calls are real: on a graph of two products, which takes milliseconds.
"""

from __future__ import annotations

import inspect
from typing import Any

import nncf
import numpy as np
import openvino
import openvino.opset13 as ops
import pytest
from transformers.exporters.configs import ExportFormat
from transformers.exporters.quantizers import NNCFOpenVINOQuantizer

from model_export.exporter.quantizers.nncf_config import nncf_config
from model_export.quantizer_table import SETTINGS

_WIDTH = 64
_INT4: dict[str, Any] = {"mode": "INT4_SYM", "group_size": 32, "all_layers": True}
# For each setting, what a BUILD file says (with what it needs beside it) and what NNCF has to get.
_QUANTIZATION: dict[str, tuple[dict[str, Any], Any]] = {
    "mode": ({"mode": "FP8_E4M3"}, nncf.QuantizationMode.FP8_E4M3),
    "preset": ({"preset": "MIXED"}, nncf.QuantizationPreset.MIXED),
    "target_device": ({"target_device": "GPU"}, nncf.TargetDevice.GPU),
    "subset_size": ({"subset_size": 1}, 1),
    "fast_bias_correction": ({"fast_bias_correction": False}, False),
    "model_type": ({"model_type": "TRANSFORMER"}, nncf.ModelType.TRANSFORMER),
    "ignored_scope": ({"ignored_scope": {"names": ["first"]}}, nncf.IgnoredScope(names=["first"])),
    "advanced_parameters": (
        {"advanced_parameters": {"overflow_fix": "DISABLE", "disable_bias_correction": True}},
        nncf.AdvancedQuantizationParameters(
            overflow_fix=nncf.OverflowFix.DISABLE, disable_bias_correction=True
        ),
    ),
}
_COMPRESSION: dict[str, tuple[dict[str, Any], Any]] = {
    "mode": ({"mode": "INT8_SYM"}, nncf.CompressWeightsMode.INT8_SYM),
    "ratio": ({**_INT4, "ratio": 0.5}, 0.5),
    "group_size": ({**_INT4, "group_size": 16}, 16),
    "ignored_scope": (
        {"ignored_scope": {"patterns": [".*first.*"]}},
        nncf.IgnoredScope(patterns=[".*first.*"]),
    ),
    "all_layers": (_INT4, True),
    "sensitivity_metric": (
        {**_INT4, "ratio": 0.5, "sensitivity_metric": "MEAN_ACTIVATION_MAGNITUDE"},
        nncf.SensitivityMetric.MEAN_ACTIVATION_MAGNITUDE,
    ),
    "subset_size": ({**_INT4, "awq": True, "subset_size": 1}, 1),
    "awq": ({**_INT4, "awq": True}, True),
    "scale_estimation": ({**_INT4, "scale_estimation": True}, True),
    "gptq": ({**_INT4, "gptq": True}, True),
    "lora_correction": ({**_INT4, "lora_correction": True}, True),
    "backup_mode": (
        {**_INT4, "all_layers": False, "backup_mode": "NONE"},
        nncf.BackupMode.NONE,
    ),
    "compression_format": ({"compression_format": "DQ"}, nncf.CompressionFormat.DQ),
    "advanced_parameters": (
        {**_INT4, "advanced_parameters": {"group_size_fallback_mode": "ADJUST"}},
        nncf.AdvancedCompressionParameters(
            group_size_fallback_mode=nncf.GroupSizeFallbackMode.ADJUST
        ),
    ),
}
# The only argument that is there without having been said: the engine's own default.
_ENGINE_DEFAULTS = {"model_type"}


def _model() -> openvino.Model:
    rng = np.random.default_rng(0)
    value = ops.parameter([-1, _WIDTH], np.float32, name="x")
    value.output(0).set_names({"x"})
    output = value
    for name in ("first", "second"):
        weight = rng.normal(size=(_WIDTH, _WIDTH)).astype(np.float32)
        output = ops.matmul(output, ops.constant(weight), False, True, name=name)
    return openvino.Model([output], [value])


def _call(function: str, name: str, settings: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """The arguments of NNCF's function, by name, and the operators and types that came of it."""
    original = getattr(nncf, function)
    seen: dict[str, Any] = {}

    def recording(*args: Any, **kwargs: Any) -> Any:
        seen.update(inspect.signature(original).bind(*args, **kwargs).arguments)
        return original(*args, **kwargs)

    rng = np.random.default_rng(1)
    samples = [{"x": rng.normal(size=(4, _WIDTH)).astype(np.float32)} for _ in range(3)]
    quantizer = NNCFOpenVINOQuantizer(
        nncf_config({"type": "NNCFOpenVINOQuantizer", "config": name, **settings}), samples
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nncf, function, recording)
        made = quantizer.quantize(_model(), samples[0], ExportFormat.OPENVINO)
    types = [f"{op.get_type_name()} {op.get_output_element_type(0)}" for op in made.get_ops()]
    return seen, " ".join(sorted(types))


_CALLS = [
    ("quantize", "NNCFQuantizationConfig", setting, *case)
    for setting, case in _QUANTIZATION.items()
] + [
    ("compress_weights", "NNCFWeightCompressionConfig", setting, *case)
    for setting, case in _COMPRESSION.items()
]


@pytest.mark.parametrize(
    ("function", "name", "setting", "settings", "expected"),
    _CALLS,
    ids=[f"{call[0]}-{call[2]}" for call in _CALLS],
)
def test_the_setting_is_an_argument(
    function: str, name: str, setting: str, settings: dict[str, Any], expected: Any
) -> None:
    arguments, _ = _call(function, name, settings)
    assert arguments[setting] == expected
    # Nothing that wasn't said: NNCF's defaults hold for the rest.
    assert arguments.keys() & SETTINGS[name].keys() - settings.keys() <= _ENGINE_DEFAULTS


def test_no_setting_is_left_out() -> None:
    assert _QUANTIZATION.keys() == SETTINGS["NNCFQuantizationConfig"].keys()
    assert _COMPRESSION.keys() == SETTINGS["NNCFWeightCompressionConfig"].keys()


@pytest.mark.parametrize(
    ("function", "name", "settings"),
    [
        ("quantize", "NNCFQuantizationConfig", _QUANTIZATION["mode"][0]),
        ("quantize", "NNCFQuantizationConfig", _QUANTIZATION["ignored_scope"][0]),
        ("compress_weights", "NNCFWeightCompressionConfig", _COMPRESSION["ratio"][0]),
        ("compress_weights", "NNCFWeightCompressionConfig", _COMPRESSION["backup_mode"][0]),
        ("compress_weights", "NNCFWeightCompressionConfig", _COMPRESSION["lora_correction"][0]),
        ("compress_weights", "NNCFWeightCompressionConfig", _COMPRESSION["ignored_scope"][0]),
    ],
)
def test_and_makes_another_graph(function: str, name: str, settings: dict[str, Any]) -> None:
    base = {} if "mode" not in settings or function == "quantize" else _INT4
    _, changed = _call(function, name, settings)
    _, usual = _call(function, name, base)
    assert changed != usual
