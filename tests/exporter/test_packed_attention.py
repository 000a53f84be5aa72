"""Attention over the patches of several images against the model's own, image by image."""

from __future__ import annotations

import pytest
import torch
from transformers.exporters import exporter_dynamo

from exporter.backends.tiny_multimodal import tiny_qwen2_vl
from model_export.exporter.packed_attention import masked_attention

# Sixteen patches and eight: as segments of twelve each they would be mixed up.
ENDS = torch.tensor([0, 16, 24], dtype=torch.int32)


def _call() -> tuple[torch.nn.Module, dict[str, object]]:
    attention = tiny_qwen2_vl().model.visual.blocks[0].attn
    generator = torch.Generator().manual_seed(3)
    hidden = torch.rand(24, 32, generator=generator)
    angles = torch.rand(24, 16, generator=generator)
    return attention, {
        "hidden_states": hidden,
        "cu_seqlens": ENDS,
        "position_embeddings": (angles.cos(), angles.sin()),
    }


def test_upstream_still_wants_segments_of_equal_length() -> None:
    """Remove `packed_attention` once this fails."""
    attention, inputs = _call()
    with pytest.raises(Exception, match="uniform segment lengths"):
        exporter_dynamo._reshaped_vision_attention_forward(attention, **inputs)


def test_images_of_different_sizes_keep_to_themselves() -> None:
    attention, inputs = _call()
    with torch.no_grad():
        expected = attention(**inputs)
        got = masked_attention(attention, **inputs)  # type: ignore[arg-type]
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-6)
