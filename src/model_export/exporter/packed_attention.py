"""Attention of an encoder over the patches of several images at once, of any sizes.

transformers 5.24.0 traces it as a batch of segments of equal length
(`exporter_dynamo._reshaped_vision_attention_forward`). What checks that is gone from most formats'
graphs, which then fail for images of different sizes, or mix their patches up where the numbers
happen to fit. A mask keeps each image's patches to themselves here, whatever their number.

`tests/exporter/test_packed_attention.py` fails once upstream takes segments of any length.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

# The engine's own patch of the same method has to come first, for this one to win.
import transformers.exporters.exporter_dynamo  # noqa: F401
from transformers.exporters.utils import register_patch
from transformers.models.qwen2_vl.modeling_qwen2_vl import apply_rotary_pos_emb_vision

_PATCHED = "transformers.models.qwen2_vl.modeling_qwen2_vl.VisionAttention.forward"


def masked_attention(
    self: Any,
    hidden_states: torch.Tensor,
    cu_seqlens: torch.Tensor,
    position_embeddings: tuple[torch.Tensor, torch.Tensor],
    **_: object,
) -> torch.Tensor:
    """`VisionAttention.forward`: [patches, size] with segments that end at `cu_seqlens`."""
    length = hidden_states.shape[0]
    packed = self.qkv(hidden_states).reshape(length, 3, self.num_heads, -1)
    query, key, value = packed.permute(1, 0, 2, 3).unbind(0)
    query, key = apply_rotary_pos_emb_vision(query, key, *position_embeddings)
    places = torch.arange(length, device=hidden_states.device)
    segments = (places[:, None] >= cu_seqlens[None, 1:]).sum(dim=-1)
    mask = segments[:, None] == segments[None, :]
    attended = torch.nn.functional.scaled_dot_product_attention(
        query.transpose(0, 1)[None],
        key.transpose(0, 1)[None],
        value.transpose(0, 1)[None],
        attn_mask=mask[None, None],
        scale=self.scaling,
    )
    result: torch.Tensor = self.proj(attended[0].transpose(0, 1).reshape(length, -1))
    return result


@register_patch("dynamo", _PATCHED)
def _patch(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    return masked_attention
