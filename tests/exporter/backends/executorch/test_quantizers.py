"""Quantized ExecuTorch programs, verified in ExecuTorch's runtime."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
    get_symmetric_quantization_config,
)
from torch.export import Dim
from transformers import ViTConfig, ViTForImageClassification
from transformers.exporters import ExecutorchConfig

from exporter.backends.executorch.one_layer import one_layer_qwen3
from exporter.backends.quantized import export_quantized, quantized_spec, weights_size
from exporter.backends.tiny_models import generation_spec, make_spec, tiny_bert
from model_export.exporter.backends.executorch.engine import _ObservedExporter
from model_export.exporter.errors import ExportError
from model_export.exporter.quantizers.fx_graph import fx_quantizer
from model_export.exporter.quantizers.quantization import Quantization
from model_export.exporter.quantizers.xnnpack import OneRangePerProduct
from model_export.manifest import ComponentRecord
from model_export.quantizer_table import SETTINGS

_XNNPACK = {"type": "PT2EQuantizer", "quantizer": "XNNPACKQuantizer"}
_ARGUMENTS = ("verify.json", "artifact", "probe", "report")
_FX_WEIGHTS = {"type": "NNCFTorchFXQuantizer", "config": "NNCFWeightCompressionConfig"}


def test_settings_are_the_functions_arguments() -> None:
    signature = inspect.signature(get_symmetric_quantization_config)
    assert set(SETTINGS["XNNPACKQuantizer"]) == set(signature.parameters)


def _config(**settings: Any) -> Any:
    return fx_quantizer(Quantization({**_XNNPACK, **settings})).quantizer.global_config


def test_every_setting_arrives() -> None:
    plain = _config()
    assert plain.weight.qscheme == torch.per_tensor_symmetric
    assert _config(is_per_channel=True).weight.qscheme == torch.per_channel_symmetric
    assert (plain.input_activation.is_dynamic, plain.output_activation is None) == (False, False)
    dynamic = _config(is_dynamic=True)
    assert (dynamic.input_activation.is_dynamic, dynamic.output_activation is None) == (True, True)
    bounds = _config(act_qmin=-64, act_qmax=63, weight_qmin=-7, weight_qmax=8)
    assert (bounds.input_activation.quant_min, bounds.input_activation.quant_max) == (-64, 63)
    assert (bounds.weight.quant_min, bounds.weight.quant_max) == (-7, 8)


_DYNAMIC = {**_XNNPACK, "is_dynamic": True, "is_per_channel": True}


# A sample: `targets` has the dynamic one on MiniLM, and docs/quantization.md all that work.
def test_ranges_observed_once(bert: tuple[ComponentRecord, Path], tmp_path: Path) -> None:
    model = tiny_bert()
    quantizer = {**_XNNPACK, "is_per_channel": True}
    built = export_quantized(model, quantized_spec(model, "executorch", quantizer), tmp_path)
    assert built.verify().failure is None
    _, plain = bert
    assert weights_size(built) < plain.stat().st_size


def test_weights_alone(tmp_path: Path) -> None:
    model = tiny_bert()
    built = export_quantized(model, quantized_spec(model, "executorch", _FX_WEIGHTS), tmp_path)
    assert built.verify().failure is None


def test_a_decoder_with_ranges_of_each_call(tmp_path: Path) -> None:
    """Queries, keys and values multiply one activation (see `OneRangePerProduct`)."""
    model = one_layer_qwen3()
    built = export_quantized(model, quantized_spec(model, "executorch", _DYNAMIC), tmp_path)
    assert built.verify().failure is None


def test_static_ranges_of_a_decoder_still_end_the_runtime(tmp_path: Path) -> None:
    """If this fails, ExecuTorch runs it: allow it in quantizer_combinations.py."""
    model = one_layer_qwen3()
    spec = generation_spec("executorch", {}, quantizer=_XNNPACK)
    export_quantized(model, spec, tmp_path)
    (tmp_path / "verify.json").write_text("{}", encoding="utf-8")
    # In a process of its own, which may end by a signal.
    verifier = subprocess.run(
        [sys.executable, "-m", "model_export.verifier", *_ARGUMENTS],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    report = tmp_path / "report" / "report.json"
    assert verifier.returncode != 0 or json.loads(report.read_text())["failure"] is not None


def test_dynamic_by_tensor_still_fails(tmp_path: Path) -> None:
    """If this fails, XNNPACK takes it: allow it in quantizer_combinations.py."""
    quantizer = {**_XNNPACK, "is_dynamic": True}
    spec = make_spec("executorch", {"dynamic": True}, quantizer=quantizer)
    with pytest.raises(ExportError, match="choose_qparams"):
        export_quantized(tiny_bert(), spec, tmp_path)


def test_four_bits_of_nncf_still_fail(tmp_path: Path) -> None:
    """If this fails, ExecuTorch has the shift: allow it in quantizer_combinations.py."""
    quantizer = {**_FX_WEIGHTS, "mode": "INT4_SYM", "group_size": 32}
    spec = make_spec("executorch", {"dynamic": True}, quantizer=quantizer)
    with pytest.raises(ExportError, match="bitwise_right_shift"):
        export_quantized(tiny_bert(), spec, tmp_path)


class _Traced(Exception):
    """Ends an export before it is lowered."""


def _fixed_image_sizes(quantizer: Any) -> list[bool]:
    """Whether batch, height and width of the images of a quantized ViT are fixed in its graph."""
    torch.manual_seed(0)
    settings = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    config = ViTConfig(num_attention_heads=2, image_size=16, patch_size=8, **settings)
    model = ViTForImageClassification(config).eval()
    shapes = {0: Dim.AUTO(max=4), 2: Dim.AUTO(max=64), 3: Dim.AUTO(max=64)}
    programs = []

    def end(program: torch.export.ExportedProgram) -> None:
        programs.append(program)
        raise _Traced

    with pytest.raises(_Traced):
        _ObservedExporter(end).export_program(
            model,
            {"pixel_values": torch.rand(2, 3, 16, 16)},
            ExecutorchConfig(
                dynamic=True, dynamic_shapes={"pixel_values": shapes}, quantizer=quantizer
            ),
        )
    (pixels,) = programs[0].graph_signature.user_inputs
    (node,) = [node for node in programs[0].graph.nodes if node.name == pixels]
    sizes = [node.meta["val"].shape[axis] for axis in (0, 2, 3)]
    return [isinstance(size, int) or size.node.expr.is_Integer for size in sizes]


@pytest.mark.parametrize("settings", [{**_XNNPACK, "is_per_channel": True}, _FX_WEIGHTS])
def test_sizes_that_a_model_fixes_stay_fixed(settings: dict[str, Any]) -> None:
    assert _fixed_image_sizes(fx_quantizer(Quantization(settings))) == [False, True, True]


def test_upstream_still_forgets_sizes_that_a_model_fixes() -> None:
    """If this fails, `FixedSizesKept` can go."""
    ours = fx_quantizer(Quantization({**_XNNPACK, "is_per_channel": True}))
    assert _fixed_image_sizes(OneRangePerProduct(ours.quantizer)) == [False, False, False]
