"""Models that see or hear, exported with prompts of text alone: right without an encoder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from transformers import PreTrainedModel

from exporter.backends.tiny_models import generation_spec, left_padded
from exporter.backends.tiny_multimodal import tiny_llava, tiny_qwen2_audio, tiny_qwen2_vl
from verifier.artifacts import build


@pytest.mark.parametrize("make_model", [tiny_llava, tiny_qwen2_vl, tiny_qwen2_audio])
def test_prompts_of_text_alone(make_model: Callable[[], PreTrainedModel], tmp_path: Path) -> None:
    built = build(make_model, left_padded(2, 8, 3), generation_spec("dynamo", {}), tmp_path)
    verdict = built.verify()
    assert verdict.failure is None
    components = [record.name for record in built.manifest.components]
    assert components == ["embed_tokens", "language_model", "lm_head", "decode"]
    generations = [case.case for case in verdict.cases if case.component == "generation"]
    assert len(generations) == 5 and "text alone, in chunks" in generations


def test_upstream_still_gives_the_mask_back() -> None:
    """If this fails, `signature.py` needn't expect a side in the name of a mask."""
    inputs = left_padded(2, 8, 3)
    assert tiny_qwen2_audio()(**inputs).attention_mask is not None
