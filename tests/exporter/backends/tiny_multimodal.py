"""Tiny models that see, with random weights, and prompts with images for them."""

from __future__ import annotations

from typing import TypeVar

import torch
from transformers import (
    CLIPVisionConfig,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    PreTrainedModel,
    Qwen2AudioConfig,
    Qwen2AudioEncoderConfig,
    Qwen2AudioForConditionalGeneration,
    Qwen2Config,
    Qwen2VLConfig,
    Qwen2VLForConditionalGeneration,
)

Model = TypeVar("Model", bound=PreTrainedModel)

IMAGE, VIDEO, START, END = 250, 251, 252, 253
SOUND = 250
# Vectors that an image of LLaVA's becomes: (16 / 8) ** 2.
VECTORS = 4
PATCH_NUMBERS = 3 * 2 * 4 * 4

_TEXT = {
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


def tiny_llava() -> LlavaForConditionalGeneration:
    """CLIP's layer before the last without its class token, a projector, and a Llama."""
    torch.manual_seed(0)
    config = LlavaConfig(
        text_config=LlamaConfig(**_TEXT),
        vision_config=CLIPVisionConfig(
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            image_size=16,
            patch_size=8,
        ),
        image_token_index=IMAGE,
        pad_token_id=0,
    )
    return _talkative(LlavaForConditionalGeneration(config).eval())


def tiny_qwen2_vl() -> Qwen2VLForConditionalGeneration:
    """Images of any size, and positions in three dimensions (M-RoPE)."""
    torch.manual_seed(0)
    config = Qwen2VLConfig(
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
        image_token_id=IMAGE,
        video_token_id=VIDEO,
        vision_start_token_id=START,
        vision_end_token_id=END,
    )
    return _talkative(Qwen2VLForConditionalGeneration(config).eval())


def tiny_qwen2_audio() -> Qwen2AudioForConditionalGeneration:
    """Whisper's encoder, whose 40 frames become ten vectors, and a Qwen2."""
    torch.manual_seed(0)
    config = Qwen2AudioConfig(
        text_config=Qwen2Config(**_TEXT),
        audio_config=Qwen2AudioEncoderConfig(
            num_mel_bins=8,
            encoder_layers=1,
            encoder_attention_heads=2,
            encoder_ffn_dim=32,
            d_model=32,
            max_source_positions=20,
        ),
        audio_token_index=SOUND,
        pad_token_id=0,
    )
    return _talkative(Qwen2AudioForConditionalGeneration(config).eval())


def qwen2_audio_inputs() -> dict[str, torch.Tensor]:
    """Two prompts with a sound of full length each."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(10, 240, (2, 18), generator=generator)
    ids[:, 4:14] = SOUND
    return {
        **_padded(ids),
        "input_features": torch.rand(2, 8, 40, generator=generator),
        "feature_attention_mask": torch.ones(2, 40, dtype=torch.int64),
    }


def llava_inputs(batch: int = 2, length: int = 12, seed: int = 1) -> dict[str, torch.Tensor]:
    """One image in each prompt; all but the first padded on the left."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(10, 240, (batch, length), generator=generator)
    ids[:, 4 : 4 + VECTORS] = IMAGE
    return {
        **_padded(ids),
        "pixel_values": torch.rand(batch, 3, 16, 16, generator=generator),
    }


def qwen2_vl_inputs(
    grids: tuple[tuple[int, int, int], ...] = ((1, 4, 4), (1, 4, 4)),
    length: int = 14,
    seed: int = 1,
) -> dict[str, torch.Tensor]:
    """One image of each grid in a prompt of its own; all but the first padded on the left."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(10, 240, (len(grids), length), generator=generator)
    patches = 0
    for row, (time, height, width) in enumerate(grids):
        patches += time * height * width
        end = 5 + time * height * width // 4
        ids[row, 4], ids[row, 5:end], ids[row, end] = START, IMAGE, END
    return {
        **_padded(ids),
        "pixel_values": torch.rand(patches, PATCH_NUMBERS, generator=generator),
        "image_grid_thw": torch.tensor(grids),
        "mm_token_type_ids": (ids == IMAGE).int(),
    }


def _padded(ids: torch.Tensor) -> dict[str, torch.Tensor]:
    mask = torch.ones_like(ids)
    mask[1:, :3] = 0
    ids[1:, :3] = 0
    return {"input_ids": ids, "attention_mask": mask}


def _talkative(model: Model) -> Model:
    """With larger weights: as they are initialised, a tiny model repeats one token."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.mul_(6)
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0
    return model
