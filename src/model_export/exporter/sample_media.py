"""Images and sound: read from their files, through the checkpoint's own processor."""

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
class MediaFile:
    """A file of an image or of sound; an error says `name`, of the target's `field`."""

    path: Path
    name: str
    field: str


@dataclass(frozen=True)
class SampleMedia:
    """The images and the sound of samples, and what makes tensors of them.

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
    fields = {key: f"sample_inputs[{key!r}]" for key in SAMPLE_FILES}
    key = next(key for key in SAMPLE_FILES if key in samples)
    processor = load_processor(checkpoint, fields[key], "describe the inputs as tensors")
    files = {
        key: [MediaFile(folder / path, path, fields[key]) for path in samples.get(key, ())]
        for key in SAMPLE_FILES
    }
    return read_media(processor, files["images"], files["audio"])


def read_media(
    processor: Any, images: Sequence[MediaFile], audio: Sequence[MediaFile]
) -> SampleMedia:
    """The contents of files, for `processor`; raises ExportError for one that it can't take."""
    wanted = getattr(_feature_extractor(processor), "sampling_rate", None)
    sounds = []
    for file in audio:
        sound, rate = _read_sound(file)
        wanted = wanted or rate
        if rate != wanted:
            raise ExportError(
                file.field,
                f"has {file.name} with {rate} samples a second, and the processor wants {wanted}",
                "Resample the file",
            )
        sounds.append(sound)
    return SampleMedia(
        processor, tuple(map(_read_image, images)), tuple(sounds), wanted if sounds else None
    )


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
    try:
        return process_batch(media, texts, spec, pad)
    except Exception as error:  # processors check with exceptions of every type
        raise ExportError(
            "sample_inputs",
            f"is refused by {type(media.processor).__name__} ({summary(error)})",
            "Write the processor's own placeholder once in the text for each file",
        ) from error


def process_batch(
    media: SampleMedia,
    texts: Sequence[str] | None,
    spec: ExportSpec,
    pad: int,
    length: int | None = None,
) -> dict[str, torch.Tensor]:
    """As `process`, for any batch, padded to `length` if given.

    Raises what the processor raises, of any type.
    """
    kwargs: dict[str, Any] = {"return_tensors": "pt"}
    if texts:
        _pad_with_something(media.processor)
        kwargs.update(text=list(texts), padding=True)
        if length is not None:
            kwargs.update(padding="max_length", max_length=length)
        if spec.for_generation:
            kwargs["padding_side"] = "left"
    if media.images:
        kwargs["images"] = list(media.images)
    if media.audio:
        kwargs.update(audio=list(media.audio), sampling_rate=media.rate)
    made = _call(media.processor, kwargs)
    tensors = {name: value for name, value in made.items() if isinstance(value, torch.Tensor)}
    mask = tensors.get("attention_mask")
    if spec.is_dynamic and mask is not None and mask.ndim == 2 and bool(mask.all()):
        return _with_padding(tensors, pad)
    return tensors


def names_made(processor: Any, kind: str) -> frozenset[str]:
    """The inputs that a processor makes of "images", or of "audio"."""
    if kind == "audio":
        part = _feature_extractor(processor)
    else:
        part = getattr(processor, "image_processor", processor)
    return frozenset(getattr(part, "model_input_names", ()))


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


def has_processor(checkpoint: Checkpoint) -> bool:
    """Whether the checkpoint says how images or sound become tensors."""
    return any((checkpoint.folder / name).exists() for name in _PROCESSOR_FILES)


def load_processor(checkpoint: Checkpoint, field: str, otherwise: str) -> Any:
    """The checkpoint's processor, image processor or feature extractor, which `field` needs.

    Raises ExportError, with `otherwise` as another way out, if there is none or it can't be read.
    """
    from transformers import AutoProcessor

    from model_export.exporter.video_processors import no_videos

    present = [name for name in _PROCESSOR_FILES if (checkpoint.folder / name).exists()]
    if not present:
        raise ExportError(
            field,
            "needs a processor, and the checkpoint has none",
            f"Add its {_PROCESSOR_FILES[0]}, or {otherwise}",
        )
    try:
        with no_videos():
            return AutoProcessor.from_pretrained(
                checkpoint.folder,
                local_files_only=True,
                trust_remote_code=checkpoint.trust_remote_code,
            )
    except Exception as error:  # each processor class loads, and fails, in ways of its own
        raise ExportError(
            present[0],
            f"can't be read as a processor ({summary(error)})",
            f"Correct it, or {otherwise}",
        ) from error


def _feature_extractor(processor: Any) -> Any:
    from transformers import FeatureExtractionMixin

    if isinstance(processor, FeatureExtractionMixin):
        return processor
    return getattr(processor, "feature_extractor", None)


def _read_image(file: MediaFile) -> Any:
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(file.path) as image:
            return image.convert("RGB")
    except (UnidentifiedImageError, OSError, Image.DecompressionBombError) as error:
        raise ExportError(
            file.field,
            f"has {file.name}, which is no image ({type(error).__name__})",
            "Name PNG, JPEG, WebP, GIF or BMP files",
        ) from error


def _read_sound(file: MediaFile) -> tuple[NDArray[np.float32], int]:
    try:
        with wave.open(str(file.path)) as sound:
            width, channels, rate = sound.getsampwidth(), sound.getnchannels(), sound.getframerate()
            raw = sound.readframes(sound.getnframes())
    except (wave.Error, EOFError) as error:
        raise ExportError(
            file.field,
            f"has {file.name}, which is no WAV file ({error or type(error).__name__})",
            "Name WAV files of 16-bit PCM",
        ) from error
    if width != _PCM_BYTES:
        raise ExportError(
            file.field,
            f"has {file.name} with {8 * width} bits a sample",
            "Name WAV files of 16-bit PCM",
        )
    samples = np.frombuffer(raw, "<i2").reshape(-1, channels).astype(np.float32) / _PCM_SCALE
    return samples.mean(axis=1, dtype=np.float32), rate
