"""Components of one ONNX artifact that differ in their config, verified together."""

from __future__ import annotations

from pathlib import Path

import onnx

from exporter.backends.tiny_models import generation_spec, left_padded
from model_export.exporter.backends.onnx.serialise import WEIGHTS_FILE
from model_export.verifier.generation_cases import GENERATION
from verifier.artifacts import build
from verifier.wrong_modules import one_layer_decoder


def test_opset_files_fusions_and_shapes_of_single_components(tmp_path: Path) -> None:
    spec = generation_spec(
        "onnx",
        {"opset_version": 21},
        multi_token_decode=False,
        component_config={
            "prefill": {"opset_version": 19, "external_data": False, "dynamic": False},
            "decode": {"ort_fusions": "cpu"},
        },
    )
    built = build(one_layer_decoder, left_padded(2, 8, 3), spec, tmp_path)
    opsets, domains = {}, {}
    for name in ("prefill", "decode"):
        model = onnx.load(built.artifact / f"{name}.onnx", load_external_data=False)
        opsets[name] = {entry.domain: entry.version for entry in model.opset_import}[""]
        domains[name] = {node.domain for node in model.graph.node}
    assert opsets == {"prefill": 19, "decode": 21}
    assert "com.microsoft" in domains["decode"]
    assert "com.microsoft" not in domains["prefill"]
    assert built.record("prefill").weights == ()
    assert built.record("decode").weights == (WEIGHTS_FILE,)
    assert built.record("prefill").inputs[0].shape == (2, 8)
    assert built.record("decode").inputs[0].shape == ("batch", 1)

    verdict = built.verify()
    assert verdict.failure is None
    # The static prefill serves prompts of the traced size, in generations with the other graph.
    assert any(case.component == GENERATION for case in verdict.cases)
