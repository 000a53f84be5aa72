"""Quantized OpenVINO artifacts, verified in OpenVINO; what it still can't convert."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import openvino
import pytest

from exporter.backends.quantized import export_quantized, quantized_spec, weights_size
from exporter.backends.tiny_models import make_spec, tiny_bert, tiny_qwen3
from model_export.exporter.errors import ExportError

_WEIGHTS = {"type": "NNCFOpenVINOQuantizer", "config": "NNCFWeightCompressionConfig"}
_INT4 = {**_WEIGHTS, "mode": "INT4_SYM", "group_size": 32}
_FX_WEIGHTS = {"type": "NNCFTorchFXQuantizer", "config": "NNCFWeightCompressionConfig"}


# A sample: `targets` has more of them on MiniLM, and docs/quantization.md all that work.
@pytest.mark.parametrize(
    ("make_model", "quantizer"),
    [
        (tiny_qwen3, {"type": "NNCFOpenVINOQuantizer"}),
        (tiny_qwen3, {**_INT4, "all_layers": True}),
        (tiny_bert, {"type": "PT2EQuantizer"}),
        (tiny_bert, _FX_WEIGHTS),
    ],
)
def test_verified(make_model: Any, quantizer: dict[str, Any], tmp_path: Path) -> None:
    model = make_model()
    built = export_quantized(model, quantized_spec(model, "openvino", quantizer), tmp_path)
    assert built.verify().failure is None
    assert built.manifest.spec["quantizer"]["type"] == quantizer["type"]


def _types(folder: Path) -> set[str]:
    """The element types of the constants in the only graph of an artifact."""
    model = openvino.Core().read_model(next(folder.glob("*.xml")))
    return {
        operation.get_element_type().get_type_name()
        for operation in model.get_ops()
        if operation.get_type_name() == "Constant"
    }


def _ignored(**scope: Any) -> dict[str, Any]:
    return {**_WEIGHTS, "ignored_scope": scope}


def test_ignored_scope_leaves_weights_alone(tmp_path: Path) -> None:
    everything = {"types": ["MatMul", "Gather"]}
    sizes = []
    for name, quantizer in (("all", _WEIGHTS), ("none", _ignored(**everything))):
        model = tiny_bert()
        built = export_quantized(
            model, quantized_spec(model, "openvino", quantizer), tmp_path / name
        )
        sizes.append(weights_size(built))
    assert "u8" in _types(tmp_path / "all" / "artifact")
    assert "u8" not in _types(tmp_path / "none" / "artifact")
    assert sizes[0] < sizes[1]


@pytest.mark.parametrize(
    ("quantizer", "expected"),
    [
        (_INT4, "i4"),
        ({**_INT4, "mode": "INT4_ASYM"}, "u4"),
        ({**_WEIGHTS, "mode": "INT8_SYM"}, "i8"),
        ({**_INT4, "mode": "NF4"}, "nf4"),
    ],
)
def test_mode_is_the_type_of_the_weights(
    quantizer: dict[str, Any], expected: str, tmp_path: Path
) -> None:
    model = tiny_bert()
    built = export_quantized(model, quantized_spec(model, "openvino", quantizer), tmp_path)
    assert expected in _types(built.artifact)


@pytest.mark.parametrize(
    "quantizer",
    [
        {"type": "PT2EQuantizer", "quantizer": "X86InductorQuantizer", "is_dynamic": True},
        {**_FX_WEIGHTS, "mode": "INT4_SYM", "group_size": 32},
    ],
    ids=["dynamic", "four bits"],
)
def test_what_openvino_still_does_not_convert(quantizer: dict[str, Any], tmp_path: Path) -> None:
    """If this fails, OpenVINO converts it: allow it in quantizer_combinations.py."""
    model = tiny_bert()
    spec = make_spec("openvino", {"dynamic": True}, quantizer=quantizer)
    with pytest.raises(ExportError, match="OpConversionFailure"):
        export_quantized(model, spec, tmp_path)
