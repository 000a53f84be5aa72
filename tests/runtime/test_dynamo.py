"""torch.export artifacts in an app."""

from __future__ import annotations

from runtime import served


def test_smollm2() -> None:
    served.check_smollm2("smollm2_dynamo")


def test_minilm() -> None:
    served.check_minilm("minilm_dynamo")


def test_forward() -> None:
    served.check_forward("minilm_dynamo")


def test_random_qwen3() -> None:
    served.check_random_qwen3("qwen3_tiny_dynamo")
