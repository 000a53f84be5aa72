"""Quantized ONNX artifacts: verified in ONNX Runtime, and each setting in the graph."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir
import onnxruntime
import pytest
from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType

from exporter.backends.quantized import export_quantized, quantized_spec
from exporter.backends.tiny_models import left_padded, make_spec, tiny_bert, tiny_qwen3
from model_export.exporter.backends.onnx import BACKEND
from model_export.exporter.backends.onnx.quantizer import (
    ENUM_CLASSES,
    build_quantizer,
    float_nodes,
)
from model_export.exporter.quantizers.quantization import Quantization
from model_export.quantizer_table import ENUMS, SETTINGS

_STATIC = {"type": "OnnxRuntimeQuantizer", "config": "OnnxRuntimeStaticConfig"}
_DYNAMIC = {"type": "OnnxRuntimeQuantizer", "config": "OnnxRuntimeDynamicConfig"}
_WEIGHTS = {"type": "NNCFOnnxQuantizer", "config": "NNCFWeightCompressionConfig"}
_INT4 = {**_WEIGHTS, "mode": "INT4_SYM", "group_size": 32}
_FX_WEIGHTS = {"type": "NNCFTorchFXQuantizer", "config": "NNCFWeightCompressionConfig"}


# A sample: `targets` has more of them on MiniLM, and docs/quantization.md all that work.
@pytest.mark.parametrize(
    ("make_model", "quantizer"),
    [
        (tiny_qwen3, _STATIC),
        (tiny_bert, {"type": "PT2EQuantizer"}),
        (tiny_bert, {**_FX_WEIGHTS, "mode": "INT4_SYM", "group_size": 32}),
    ],
)
def test_verified(make_model: Any, quantizer: dict[str, Any], tmp_path: Path) -> None:
    model = make_model()
    built = export_quantized(model, quantized_spec(model, "onnx", quantizer), tmp_path)
    assert built.verify().failure is None
    assert built.manifest.spec["quantizer"]["type"] == quantizer["type"]


def test_a_single_component(tmp_path: Path) -> None:
    model = tiny_qwen3()
    spec = quantized_spec(
        model,
        "onnx",
        {"decode": _INT4},
        components=("prefill", "decode"),
        multi_token_decode=False,
    )
    built = export_quantized(model, spec, tmp_path)
    assert built.verify().failure is None
    operators = {
        name: Counter(node.op_type for node in onnx_ir.load(built.artifact / f"{name}.onnx").graph)
        for name in ("prefill", "decode")
    }
    assert operators["decode"]["DequantizeLinear"] > 0
    assert operators["prefill"]["DequantizeLinear"] == 0


def test_a_static_cache_calibrates_on_the_prompt_too(tmp_path: Path) -> None:
    model = tiny_qwen3()
    spec = quantized_spec(
        model,
        "onnx",
        _STATIC,
        generation_config={"cache_implementation": "static", "max_cache_len": 64},
    )
    built = export_quantized(model, spec, tmp_path)
    assert built.verify().failure is None
    assert built.manifest.calibration is not None
    assert built.manifest.calibration.source == "sample_inputs"
    assert built.manifest.calibration.batches == {"decode": 2}


def test_positions_and_masks_stay_floats(program: onnx_ir.Model) -> None:
    """In eight bits they spoil every model that attends: see `_FloatPositionsAndMasks`."""
    kept = set(float_nodes(program))
    operators = {node.op_type for node in program.graph if node.name in kept}
    assert {"Softmax", "Add"} <= operators
    assert not {"MatMul", "Gemm", "LayerNormalization"} & operators
    lowest = [
        node.inputs[1].const_value.numpy()
        for node in _quantize(program, _STATIC).graph
        if node.op_type == "QuantizeLinear"
    ]
    assert max(float(scale) for scale in lowest) < 1


@pytest.fixture(scope="module")
def program() -> onnx_ir.Model:
    spec = make_spec("onnx", {"dynamic": True})
    model: onnx_ir.Model = BACKEND.export("model", tiny_bert(), left_padded(2, 8, 3), spec)
    return model


def _quantize(program: onnx_ir.Model, settings: dict[str, Any]) -> onnx_ir.Model:
    quantizer = build_quantizer(Quantization(settings))
    # ONNX Runtime quantizes from file to file: the program stays as it is.
    quantized: onnx_ir.Model = quantizer.quantize(program, left_padded(2, 8, 3), "onnx")
    return quantized


def _operators(model: onnx_ir.Model) -> Counter[str]:
    return Counter(node.op_type for node in model.graph)


def _weights(model: onnx_ir.Model) -> dict[str, np.ndarray]:
    """The quantized weights: every large initializer of eight bits."""
    return {
        name: value.const_value.numpy()
        for name, value in model.graph.initializers.items()
        if value.const_value.dtype in (onnx_ir.DataType.INT8, onnx_ir.DataType.UINT8)
        and value.const_value.size > 1000
    }


def test_quant_format(program: onnx_ir.Model) -> None:
    assert _operators(_quantize(program, _STATIC))["QuantizeLinear"] > 0
    # onnxruntime 1.32.0 loses a tensor of attention in this format: an error, and no artifact.
    with pytest.raises(RuntimeError, match="unknown initializers"):
        _quantize(program, {**_STATIC, "quant_format": "QOperator"})


@pytest.mark.parametrize("base", [_STATIC, _DYNAMIC])
def test_op_types_to_quantize(program: onnx_ir.Model, base: dict[str, Any]) -> None:
    assert _weights(_quantize(program, {**base, "op_types_to_quantize": ["Conv"]})) == {}
    assert _weights(_quantize(program, base)) != {}


@pytest.mark.parametrize("base", [_STATIC, _DYNAMIC])
def test_per_channel(program: onnx_ir.Model, base: dict[str, Any]) -> None:
    def scales(model: onnx_ir.Model) -> int:
        found = [
            value.const_value.size
            for name, value in model.graph.initializers.items()
            if "scale" in name and value.const_value is not None
        ]
        return max(found)

    assert scales(_quantize(program, base)) == 1
    assert scales(_quantize(program, {**base, "per_channel": True})) > 1


@pytest.mark.parametrize("base", [_STATIC, _DYNAMIC])
def test_reduce_range(program: onnx_ir.Model, base: dict[str, Any]) -> None:
    def largest(model: onnx_ir.Model) -> int:
        # Dynamic quantization leaves embeddings unsigned, and whole.
        signed = [weight for weight in _weights(model).values() if weight.dtype == np.int8]
        return max(int(np.abs(weight.astype(int)).max()) for weight in signed)

    assert largest(_quantize(program, base)) > 64
    assert largest(_quantize(program, {**base, "reduce_range": True})) <= 64


@pytest.mark.parametrize("base", [_STATIC, _DYNAMIC])
def test_weight_type(program: onnx_ir.Model, base: dict[str, Any]) -> None:
    unsigned = {**base, "weight_type": "QUInt8"}
    if base is _STATIC:
        unsigned["activation_type"] = "QUInt8"

    def types(settings: dict[str, Any]) -> set[np.dtype[Any]]:
        return {weight.dtype for weight in _weights(_quantize(program, settings)).values()}

    assert np.dtype(np.int8) in types(base)
    assert types(unsigned) == {np.dtype(np.uint8)}


def test_activation_type(program: onnx_ir.Model) -> None:
    def zero_points(model: onnx_ir.Model) -> set[str]:
        return {
            str(node.inputs[2].const_value.dtype)
            for node in model.graph
            if node.op_type == "QuantizeLinear"
        }

    assert zero_points(_quantize(program, _STATIC)) == {"INT8"}
    assert zero_points(_quantize(program, {**_STATIC, "activation_type": "QUInt8"})) == {"UINT8"}


@pytest.mark.parametrize("base", [_STATIC, _DYNAMIC])
def test_nodes(program: onnx_ir.Model, base: dict[str, Any]) -> None:
    everything = len(_weights(_quantize(program, base)))
    name = next(
        node.name
        for node in program.graph
        if node.op_type in ("MatMul", "Gemm") and node.inputs[1].is_initializer()
    )
    one = _weights(_quantize(program, {**base, "nodes_to_quantize": [name]}))
    assert len(one) == 1 < everything
    others = _weights(_quantize(program, {**base, "nodes_to_exclude": [name]}))
    assert len(others) == everything - 1
    assert set(one).isdisjoint(others)


def test_calibrate_method(program: onnx_ir.Model) -> None:
    def scales(model: onnx_ir.Model) -> list[float]:
        return [
            float(node.inputs[1].const_value.numpy())
            for node in model.graph
            if node.op_type == "QuantizeLinear"
        ]

    assert scales(_quantize(program, _STATIC)) != scales(
        _quantize(program, {**_STATIC, "calibrate_method": "Percentile"})
    )


def test_calibration_providers(program: onnx_ir.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU has one provider alone, so that what each session is made with has to tell."""
    seen = []
    original = onnxruntime.InferenceSession

    def recording(*args: Any, **kwargs: Any) -> Any:
        seen.append(kwargs.get("providers"))
        return original(*args, **kwargs)

    monkeypatch.setattr(onnxruntime, "InferenceSession", recording)
    wanted = ["CPUExecutionProvider", "AzureExecutionProvider"]
    _quantize(program, {**_STATIC, "calibration_providers": wanted})
    assert wanted in seen


def test_extra_options(program: onnx_ir.Model) -> None:
    symmetric = {**_STATIC, "extra_options": {"ActivationSymmetric": True}}

    def zero_points(settings: dict[str, Any]) -> set[int]:
        return {
            int(node.inputs[2].const_value.numpy())
            for node in _quantize(program, settings).graph
            if node.op_type == "QuantizeLinear"
        }

    assert zero_points(symmetric) == {0} != zero_points(_STATIC)


def test_every_setting_arrives() -> None:
    override = {"x": [{"quant_type": "QInt16", "symmetric": True}]}
    values: dict[str, Any] = {
        "quant_format": "QOperator",
        "op_types_to_quantize": ["Gemm"],
        "per_channel": True,
        "reduce_range": True,
        "activation_type": "QUInt16",
        "weight_type": "QInt4",
        "nodes_to_quantize": ["a"],
        "nodes_to_exclude": ["b"],
        "calibrate_method": "Entropy",
        "calibration_providers": ["c"],
        "extra_options": {"MinimumRealRange": 0.5, "TensorQuantOverrides": override},
    }
    made = {
        **values,
        "quant_format": QuantFormat.QOperator,
        "activation_type": QuantType.QUInt16,
        "weight_type": QuantType.QInt4,
        "calibrate_method": CalibrationMethod.Entropy,
        "extra_options": {
            "MinimumRealRange": 0.5,
            "TensorQuantOverrides": {"x": [{"quant_type": QuantType.QInt16, "symmetric": True}]},
        },
    }
    for name in ("OnnxRuntimeStaticConfig", "OnnxRuntimeDynamicConfig"):
        settings = SETTINGS[name]
        quantizer = build_quantizer(
            Quantization(
                {
                    "type": "OnnxRuntimeQuantizer",
                    "config": name,
                    **{key: values[key] for key in settings},
                }
            )
        )
        assert type(quantizer.config).__name__ == name
        assert vars(quantizer.config) == {key: made[key] for key in settings}


@pytest.mark.parametrize("name", sorted(ENUM_CLASSES))
def test_enums_are_onnx_runtimes(name: str) -> None:
    assert set(ENUMS[name]) == set(ENUM_CLASSES[name].__members__)


def test_four_bits_are_smaller_than_eight() -> None:
    def size(settings: dict[str, Any]) -> int:
        model: onnx_ir.Model = BACKEND.export(
            "model",
            tiny_bert(),
            left_padded(2, 8, 3),
            make_spec("onnx", {"dynamic": True}),
            Quantization(settings),
        )
        return sum(value.const_value.nbytes for value in model.graph.initializers.values())

    assert size(_INT4) < size(_WEIGHTS)
