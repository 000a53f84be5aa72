"""Sample images and sound: read from their files, through the checkpoint's own processor."""

from __future__ import annotations

import wave
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from model_export.exporter.checkpoint_folder import Checkpoint
from model_export.exporter.errors import ExportError, summary
from model_export.spec import SAMPLE_FILES, ExportSpec

# One of these, and the checkpoint says how images or sound become tensors.
_PROCESSOR_FILES = ("preprocessor_config.json", "processor_config.json")
_PCM_BYTES = 2
_PCM_SCALE = 1 << 15


@dataclass(frozen=True)
class SampleMedia:
    """The images and the sound of `sample_inputs`, and what makes tensors of them.

    `audio` are mono samples in [-1, 1), `rate` of them a second.
    """

    processor: Any
    images: tuple[Any, ...]
    audio: tuple[NDArray[np.float32], ...]
    rate: int | None


def read_sample_media(checkpoint: Checkpoint, spec: ExportSpec, folder: Path) -> SampleMedia | None:
    """The files that `sample_inputs` names, below `folder`; None if it names none.

    Raises ExportError for a checkpoint without a processor, and for a file that can't be read.
    """
    samples = spec.sample_inputs or {}
    if not any(key in samples for key in SAMPLE_FILES):
        return None
    key = next(key for key in SAMPLE_FILES if key in samples)
    processor = _load_processor(checkpoint, f"sample_inputs[{key!r}]")
    images = tuple(_read_image(folder / path, path) for path in samples.get("images", ()))
    sounds = [_read_sound(folder / path, path) for path in samples.get("audio", ())]
    rates = sorted({rate for _, rate in sounds})
    wanted = getattr(_feature_extractor(processor), "sampling_rate", None)
    for rate in rates:
        if rate != (wanted or rates[0]):
            raise ExportError(
                "sample_inputs['audio']",
                f"has {rate} samples a second, and the processor wants {wanted or rates[0]}",
                "Resample the files",
            )
    audio = tuple(sound for sound, _ in sounds)
    return SampleMedia(processor, images, audio, rates[0] if rates else None)


def process(
    media: SampleMedia, texts: Sequence[str] | None, spec: ExportSpec, pad: int
) -> dict[str, torch.Tensor]:
    """What the processor makes of text, images and sound together; text padded on the left.

    `pad` stands at padded positions. Raises ExportError for a batch of one that would be frozen,
    for placeholders that don't fit the files, and for what the processor refuses.
    """
    batch = len(texts or media.images or media.audio)
    if spec.is_dynamic and batch < 2:
        name = "text" if texts else "images" if media.images else "audio"
        raise ExportError(
            f"sample_inputs[{name!r}]",
            "has one sample, and a traced batch of one is frozen at one",
            "Give two samples, or export without dynamic shapes",
        )
    kwargs: dict[str, Any] = {"return_tensors": "pt"}
    if texts:
        _pad_with_something(media.processor)
        kwargs.update(text=list(texts), padding=True)
        if spec.for_generation:
            kwargs["padding_side"] = "left"
    if media.images:
        kwargs["images"] = list(media.images)
    if media.audio:
        kwargs.update(audio=list(media.audio), sampling_rate=media.rate)
    try:
        made = _call(media.processor, kwargs)
    except Exception as error:  # processors check with exceptions of every type
        raise ExportError(
            "sample_inputs",
            f"is refused by {type(media.processor).__name__} ({summary(error)})",
            "Write the processor's own placeholder once in the text for each file",
        ) from error
    tensors = {name: value for name, value in made.items() if isinstance(value, torch.Tensor)}
    mask = tensors.get("attention_mask")
    if spec.is_dynamic and mask is not None and mask.ndim == 2 and bool(mask.all()):
        return _with_padding(tensors, pad)
    return tensors


def _call(processor: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Sound alone goes to a feature extractor, which calls it by another name."""
    extractor = _feature_extractor(processor)
    if "audio" in kwargs and "text" not in kwargs and extractor is not None:
        sounds = kwargs.pop("audio")
        return dict(extractor(sounds, **kwargs))
    if "text" not in kwargs and "audio" not in kwargs:
        processor = getattr(processor, "image_processor", processor)
    return dict(processor(**kwargs))


def _with_padding(tensors: Mapping[str, torch.Tensor], pad: int) -> dict[str, torch.Tensor]:
    """One more column on the left: `generate` drops a mask of ones, so that graphs take none."""
    shape = tensors["attention_mask"].shape
    return {
        name: torch.nn.functional.pad(tensor, (1, 0), value=pad if name == "input_ids" else 0)
        if tensor.shape == shape
        else tensor
        for name, tensor in tensors.items()
    }


def _pad_with_something(processor: Any) -> None:
    tokenizer = getattr(processor, "tokenizer", processor)
    if getattr(tokenizer, "pad_token_id", 0) is None:
        tokenizer.pad_token = tokenizer.eos_token


def _load_processor(checkpoint: Checkpoint, field: str) -> Any:
    from transformers import AutoProcessor

    present = [name for name in _PROCESSOR_FILES if (checkpoint.folder / name).exists()]
    if not present:
        raise ExportError(
            field,
            "needs a processor, and the checkpoint has none",
            f"Add its {_PROCESSOR_FILES[0]}, or describe the inputs as tensors",
        )
    try:
        return AutoProcessor.from_pretrained(
            checkpoint.folder,
            local_files_only=True,
            trust_remote_code=checkpoint.trust_remote_code,
        )
    except Exception as error:  # each processor class loads, and fails, in ways of its own
        raise ExportError(
            present[0],
            f"can't be read as a processor ({summary(error)})",
            "Correct it, or describe the inputs as tensors",
        ) from error


def _feature_extractor(processor: Any) -> Any:
    from transformers import FeatureExtractionMixin

    if isinstance(processor, FeatureExtractionMixin):
        return processor
    return getattr(processor, "feature_extractor", None)


def _read_image(file: Path, name: str) -> Any:
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(file) as image:
            return image.convert("RGB")
    except (UnidentifiedImageError, OSError, Image.DecompressionBombError) as error:
        raise ExportError(
            "sample_inputs['images']",
            f"has {name}, which is no image ({type(error).__name__})",
            "Name PNG, JPEG, WebP, GIF or BMP files",
        ) from error


def _read_sound(file: Path, name: str) -> tuple[NDArray[np.float32], int]:
    try:
        with wave.open(str(file)) as sound:
            width, channels, rate = sound.getsampwidth(), sound.getnchannels(), sound.getframerate()
            raw = sound.readframes(sound.getnframes())
    except (wave.Error, EOFError) as error:
        raise ExportError(
            "sample_inputs['audio']",
            f"has {name}, which is no WAV file ({error or type(error).__name__})",
            "Name WAV files of 16-bit PCM",
        ) from error
    if width != _PCM_BYTES:
        raise ExportError(
            "sample_inputs['audio']",
            f"has {name} with {8 * width} bits a sample",
            "Name WAV files of 16-bit PCM",
        )
    samples = np.frombuffer(raw, "<i2").reshape(-1, channels).astype(np.float32) / _PCM_SCALE
    return samples.mean(axis=1, dtype=np.float32), rate
