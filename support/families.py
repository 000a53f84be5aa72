"""A tiny model of each family of the support table: real config classes, random weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers

_TEXT: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_SEQ2SEQ: dict[str, Any] = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "vocab_size": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
}


@dataclass(frozen=True)
class Family:
    """One row of the table: a model class, and the arguments of its config class."""

    name: str
    architecture: str
    config: Callable[[], Any]
    generates: bool = True
    # A state instead of a cache of positions: one token at a time, and no length to fix.
    recurrent: bool = False
    # An encoder of tokens before the decoder.
    encodes_tokens: bool = False
    # As a BUILD file has them, where the model's defaults are of text alone.
    sample_inputs: Mapping[str, Any] | None = None

    def save_checkpoint(self, folder: Path) -> None:
        """Write config and safetensors with weights drawn from a fixed seed."""
        torch.manual_seed(0)
        model = getattr(transformers, self.architecture)(self.config())
        if self.generates:
            # What a real checkpoint says about itself, and the export has to cope with.
            model.generation_config.pad_token_id = 0
        model.save_pretrained(folder)


def _qwen2_vl() -> Any:
    return transformers.Qwen2VLConfig(
        text_config={
            **_TEXT,
            "rope_parameters": {
                "rope_type": "default",
                "mrope_section": [2, 3, 3],
                "rope_theta": 10000.0,
            },
        },
        vision_config={
            "depth": 1,
            "embed_dim": 32,
            "hidden_size": 64,
            "num_heads": 2,
            "mlp_ratio": 2,
            "patch_size": 4,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
        },
        image_token_id=250,
        video_token_id=251,
        vision_start_token_id=252,
        vision_end_token_id=253,
    )


def _llava() -> Any:
    return transformers.LlavaConfig(
        text_config=transformers.LlamaConfig(**_TEXT),
        vision_config=transformers.CLIPVisionConfig(
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            image_size=16,
            patch_size=8,
        ),
        image_token_index=250,
        pad_token_id=0,
    )


# Two prompts with an image of four vectors each, the second padded.
_IMAGE_PROMPTS: dict[str, Any] = {
    "input_ids": {
        "values": [
            [40, 41, 252, 250, 250, 250, 250, 253, 42, 43, 44],
            [0, 0, 252, 250, 250, 250, 250, 253, 60, 61, 62],
        ],
        "dtype": "int64",
    },
    "attention_mask": {"values": [[1] * 11, [0] * 2 + [1] * 9], "dtype": "int64"},
}
_IMAGES: dict[str, Any] = {
    **_IMAGE_PROMPTS,
    "pixel_values": {"shape": [2, 3, 16, 16], "dtype": "float32"},
}
_GRIDS: dict[str, Any] = {
    **_IMAGE_PROMPTS,
    "mm_token_type_ids": {"values": [[0] * 3 + [1] * 4 + [0] * 4] * 2, "dtype": "int32"},
    "image_grid_thw": {"values": [[1, 4, 4], [1, 4, 4]], "dtype": "int64"},
    "pixel_values": {"shape": [32, 96], "dtype": "float32"},
}

FAMILIES = (
    Family(
        "BERT",
        "BertModel",
        lambda: transformers.BertConfig(
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            vocab_size=256,
            max_position_embeddings=64,
        ),
        generates=False,
    ),
    Family(
        "ViT",
        "ViTForImageClassification",
        lambda: transformers.ViTConfig(
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            image_size=32,
            patch_size=8,
            num_labels=5,
        ),
        generates=False,
    ),
    Family("Llama", "LlamaForCausalLM", lambda: transformers.LlamaConfig(**_TEXT)),
    Family("Qwen3", "Qwen3ForCausalLM", lambda: transformers.Qwen3Config(**_TEXT, head_dim=16)),
    Family(
        "Qwen3-MoE",
        "Qwen3MoeForCausalLM",
        lambda: transformers.Qwen3MoeConfig(
            **_TEXT, head_dim=16, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32
        ),
    ),
    Family(
        "Gemma 3 (sliding window)",
        "Gemma3ForCausalLM",
        lambda: transformers.Gemma3TextConfig(
            **_TEXT,
            head_dim=16,
            sliding_window=16,
            layer_types=["sliding_attention", "full_attention"],
        ),
    ),
    Family(
        "Mamba",
        "MambaForCausalLM",
        lambda: transformers.MambaConfig(
            hidden_size=32, state_size=8, num_hidden_layers=2, vocab_size=256, pad_token_id=0
        ),
        recurrent=True,
    ),
    Family(
        "Whisper",
        "WhisperForConditionalGeneration",
        lambda: transformers.WhisperConfig(
            **_SEQ2SEQ,
            max_source_positions=50,
            max_target_positions=64,
            num_mel_bins=8,
            suppress_tokens=None,
            begin_suppress_tokens=None,
        ),
    ),
    Family(
        "T5",
        "T5ForConditionalGeneration",
        lambda: transformers.T5Config(
            d_model=32,
            d_kv=16,
            d_ff=64,
            num_layers=2,
            num_heads=2,
            vocab_size=256,
            decoder_start_token_id=0,
        ),
        encodes_tokens=True,
    ),
    Family(
        "BART",
        "BartForConditionalGeneration",
        lambda: transformers.BartConfig(
            **_SEQ2SEQ, max_position_embeddings=64, forced_eos_token_id=None
        ),
        encodes_tokens=True,
    ),
    Family("Qwen2-VL (text)", "Qwen2VLForConditionalGeneration", _qwen2_vl),
    Family(
        "Qwen2-VL (images)",
        "Qwen2VLForConditionalGeneration",
        _qwen2_vl,
        sample_inputs=_GRIDS,
    ),
    Family("LLaVA (images)", "LlavaForConditionalGeneration", _llava, sample_inputs=_IMAGES),
)
