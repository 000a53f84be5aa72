"""Quantized programs of torch.export, verified in torch; what NNCF still can't quantize."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from exporter.backends.quantized import export_quantized, quantized_spec
from exporter.backends.tiny_models import make_spec, tiny_bert, tiny_qwen3
from model_export.exporter.errors import ExportError
from model_export.exporter.quantizers.fx_graph import fx_quantizer
from model_export.exporter.quantizers.quantization import Quantization

_X86 = {"type": "PT2EQuantizer", "quantizer": "X86InductorQuantizer"}
_WEIGHTS = {"type": "NNCFTorchFXQuantizer", "config": "NNCFWeightCompressionConfig"}
_INT4 = {**_WEIGHTS, "mode": "INT4_SYM", "group_size": 32}


# A sample: `targets` has more of them on MiniLM, and docs/quantization.md all that work.
@pytest.mark.parametrize(
    ("make_model", "quantizer"),
    [(tiny_qwen3, _X86), (tiny_bert, {**_X86, "is_dynamic": True}), (tiny_qwen3, _INT4)],
)
def test_verified(make_model: Any, quantizer: dict[str, Any], tmp_path: Path) -> None:
    model = make_model()
    built = export_quantized(model, quantized_spec(model, "dynamo", quantizer), tmp_path)
    assert built.verify().failure is None


def test_replaced_weights_are_not_stored(tmp_path: Path) -> None:
    """Once PT2E leaves none behind, `OnceStoredQuantizer` can go."""
    model = tiny_bert()
    export_quantized(model, quantized_spec(model, "dynamo", _X86), tmp_path)
    program = torch.export.load(tmp_path / "artifact" / "model.pt2")
    kept = {name for name, tensor in program.state_dict.items() if tensor.is_floating_point()}
    assert kept
    # Linear weights are there as int8 alone.
    assert not {name for name in kept if name.endswith(("query.weight", "dense.weight"))}


def test_int8_of_nncf_still_fails(tmp_path: Path) -> None:
    """If this fails, NNCF finds keyword arguments: allow its int8 in quantizer_combinations.py."""
    quantizer = {"type": "NNCFTorchFXQuantizer", "config": "NNCFQuantizationConfig"}
    spec = make_spec("dynamo", {"dynamic": True}, quantizer=quantizer)
    with pytest.raises(ExportError, match="tuple index out of range"):
        export_quantized(tiny_bert(), spec, tmp_path)


@pytest.mark.parametrize(
    ("setting", "activation"),
    [
        ({}, (False, 255)),
        ({"is_dynamic": True}, (True, 255)),
        ({"reduce_range": True}, (False, 127)),
    ],
)
def test_settings_of_x86_inductor(setting: dict[str, Any], activation: tuple[bool, int]) -> None:
    config = fx_quantizer(Quantization({**_X86, **setting})).quantizer.global_config
    assert (config.input_activation.is_dynamic, config.input_activation.quant_max) == activation
    assert config.weight.dtype == torch.int8
