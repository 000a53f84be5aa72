"""Checkpoint files of processors, and images and sound for them."""

from __future__ import annotations

import json
import wave
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

_SPECIAL = ("<pad>", "<s>", "</s>", "<unk>", "<image>")
_WORDS = ("what", "is", "this", "?", "Hi")
# The id of `<image>`; those of the words follow.
IMAGE = _SPECIAL.index("<image>")
WORDS = {word: number for number, word in enumerate((*_SPECIAL, *_WORDS))}
# The tokens around an image and in its place, beyond those.
QWEN2_VL = {
    "<|image_pad|>": 250,
    "<|video_pad|>": 251,
    "<|vision_start|>": 252,
    "<|vision_end|>": 253,
}


def write_json(folder: Path, name: str, document: dict[str, Any]) -> None:
    """A JSON file in `folder`."""
    (folder / name).write_text(json.dumps(document), encoding="utf-8")


def write_llava(folder: Path) -> None:
    """The files of a processor of images of 16 x 16 in patches of 8, and of words."""
    _write_tokenizer(folder, WORDS, _SPECIAL)
    write_json(
        folder,
        "preprocessor_config.json",
        {
            "image_processor_type": "CLIPImageProcessor",
            "size": {"shortest_edge": 16},
            "crop_size": {"height": 16, "width": 16},
            "image_mean": [0.5, 0.5, 0.5],
            "image_std": [0.5, 0.5, 0.5],
        },
    )
    write_json(
        folder,
        "processor_config.json",
        {
            "processor_class": "LlavaProcessor",
            "patch_size": 8,
            "vision_feature_select_strategy": "default",
            "num_additional_image_tokens": 1,
        },
    )


def write_qwen2_vl(folder: Path) -> None:
    """The files of a processor of images of any size, four by four patches of 4 x 4 at most."""
    _write_tokenizer(folder, {**WORDS, **QWEN2_VL}, (*_SPECIAL, *QWEN2_VL))
    write_json(
        folder,
        "preprocessor_config.json",
        {
            "image_processor_type": "Qwen2VLImageProcessor",
            "processor_class": "Qwen2VLProcessor",
            "patch_size": 4,
            "temporal_patch_size": 2,
            "merge_size": 2,
            "min_pixels": 64,
            "max_pixels": 256,
            "image_mean": [0.5, 0.5, 0.5],
            "image_std": [0.5, 0.5, 0.5],
        },
    )


def _write_tokenizer(folder: Path, vocabulary: dict[str, int], special: tuple[str, ...]) -> None:
    added = [
        {
            "id": vocabulary[token],
            "content": token,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for token in special
    ]
    write_json(
        folder,
        "tokenizer.json",
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": added,
            "normalizer": None,
            "pre_tokenizer": {"type": "WhitespaceSplit"},
            "post_processor": None,
            "decoder": None,
            "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>"},
        },
    )
    write_json(
        folder,
        "tokenizer_config.json",
        {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "<pad>"},
    )


def write_vit(folder: Path, size: int = 16) -> None:
    """The file of an image processor: of `size` x `size`, in numbers from -1 to 1."""
    write_json(
        folder,
        "preprocessor_config.json",
        {
            "image_processor_type": "ViTImageProcessor",
            "size": {"height": size, "width": size},
            "image_mean": [0.5, 0.5, 0.5],
            "image_std": [0.5, 0.5, 0.5],
        },
    )


def write_whisper(folder: Path) -> None:
    """The file of a feature extractor: one second in steps of ten milliseconds."""
    write_json(
        folder,
        "preprocessor_config.json",
        {
            "feature_extractor_type": "WhisperFeatureExtractor",
            "feature_size": 16,
            "sampling_rate": 16000,
            "hop_length": 160,
            "chunk_length": 1,
            "n_fft": 400,
        },
    )


def write_image(file: Path, color: tuple[int, int, int], size: tuple[int, int] = (16, 16)) -> None:
    """An image of one color."""
    Image.new("RGB", size, color).save(file)


def write_sound(
    file: Path, rate: int = 16000, width: int = 2, channels: int = 1, tone: int = 440
) -> None:
    """Half a second of one tone."""
    times = np.arange(rate // 2) / rate
    samples = np.repeat((9000 * np.sin(2 * np.pi * tone * times)).astype("<i2"), channels)
    with wave.open(str(file), "wb") as sound:
        sound.setnchannels(channels)
        sound.setsampwidth(width)
        sound.setframerate(rate)
        sound.writeframes(samples.tobytes() if width == 2 else bytes(len(samples)))
