"""OpenVINO artifacts in an app that has no torch."""

from __future__ import annotations

from runtime import served


def test_the_resolve_has_no_torch() -> None:
    served.check_slim()


def test_smollm2() -> None:
    served.check_smollm2("smollm2_openvino")


def test_minilm() -> None:
    served.check_minilm("minilm_openvino")


def test_forward() -> None:
    served.check_forward("minilm_openvino")


def test_random_qwen3() -> None:
    served.check_random_qwen3("qwen3_tiny_openvino")
