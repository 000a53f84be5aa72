"""Images and sound of files through a checkpoint's own processor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from exporter.backends.tiny_models import make_spec
from exporter.media_files import IMAGE, write_image, write_llava, write_sound, write_whisper
from model_export.exporter.checkpoint_folder import Checkpoint
from model_export.exporter.errors import ExportError
from model_export.exporter.sample_media import process, read_sample_media
from model_export.spec import ExportSpec


@pytest.fixture
def llava(tmp_path: Path) -> Path:
    write_llava(tmp_path)
    write_image(tmp_path / "red.png", (255, 0, 0))
    Image.new("L", (32, 16), 255).save(tmp_path / "white.png")
    return tmp_path


def _checkpoint(folder: Path) -> Checkpoint:
    return Checkpoint(folder, {}, "", False, False, (), ())


def _spec(samples: dict[str, Any], dynamic: bool = True) -> ExportSpec:
    return make_spec("dynamo", {"dynamic": dynamic}, for_generation=True, sample_inputs=samples)


def _processed(folder: Path, samples: dict[str, Any], dynamic: bool = True) -> dict[str, Any]:
    spec = _spec(samples, dynamic)
    media = read_sample_media(_checkpoint(folder), spec, folder)
    assert media is not None
    return process(media, samples.get("text"), spec, 0)


def test_text_and_images_go_through_the_processor_together(llava: Path) -> None:
    made = _processed(
        llava,
        {"text": ["<image> what is this ?", "<image> Hi"], "images": ["red.png", "white.png"]},
    )
    # One placeholder becomes one for each of four patches; the shorter text is padded on the left.
    assert made["input_ids"].tolist() == [
        [IMAGE] * 4 + [5, 6, 7, 8],
        [0, 0, 0] + [IMAGE] * 4 + [9],
    ]
    assert made["attention_mask"].tolist() == [[1] * 8, [0] * 3 + [1] * 5]
    # (255, 0, 0) by mean and deviation of one half.
    red, white = made["pixel_values"]
    assert red.mean(dim=(1, 2)).tolist() == pytest.approx([1, -1, -1])
    assert white.mean(dim=(1, 2)).tolist() == pytest.approx([1, 1, 1])


def test_texts_of_equal_length_get_a_column_of_padding(llava: Path) -> None:
    samples = {"text": ["<image> Hi", "<image> Hi"], "images": ["red.png", "white.png"]}
    assert _processed(llava, samples)["attention_mask"].tolist() == [[0] + [1] * 5] * 2
    assert _processed(llava, samples, dynamic=False)["attention_mask"].tolist() == [[1] * 5] * 2


@pytest.mark.parametrize(
    ("samples", "error"),
    [
        (
            {"text": ["<image> Hi"], "images": ["red.png"]},
            r"`sample_inputs\['text'\]` has one sample, and a traced batch of one is frozen",
        ),
        (
            {"text": ["Hi", "Hi"], "images": ["red.png", "white.png"]},
            "refused by LlavaProcessor .*Write the processor's own placeholder once in the text",
        ),
        (
            {"text": ["<image>", "<image>"], "images": ["red.png", "tokenizer.json"]},
            r"`sample_inputs\['images'\]` has tokenizer.json, which is no image",
        ),
        (
            {"audio": ["red.png"]},
            r"`sample_inputs\['audio'\]` has red.png, which is no WAV file",
        ),
    ],
)
def test_samples_that_do_not_fit(llava: Path, samples: dict[str, Any], error: str) -> None:
    with pytest.raises(ExportError, match=error):
        _processed(llava, samples)


def test_a_checkpoint_without_a_processor(llava: Path) -> None:
    for name in ("preprocessor_config.json", "processor_config.json"):
        (llava / name).unlink()
    with pytest.raises(ExportError, match="needs a processor, and the checkpoint has none"):
        _processed(llava, {"text": ["<image>"] * 2, "images": ["red.png", "white.png"]})


def test_no_files_no_processor(tmp_path: Path) -> None:
    assert read_sample_media(_checkpoint(tmp_path), _spec({"text": ["Hi"]}), tmp_path) is None


@pytest.fixture
def whisper(tmp_path: Path) -> Path:
    write_whisper(tmp_path)
    return tmp_path


def test_sound_becomes_features(whisper: Path) -> None:
    write_sound(whisper / "mono.wav")
    write_sound(whisper / "stereo.wav", channels=2)
    features = _processed(whisper, {"audio": ["mono.wav", "stereo.wav"]})["input_features"]
    # One second in steps of ten milliseconds.
    assert features.shape == (2, 16, 100)
    torch.testing.assert_close(features[0], features[1])
    assert features[0, :, :45].mean() > features[0, :, 55:].mean()


@pytest.mark.parametrize(
    ("rate", "width", "error"),
    [
        (8000, 2, "has odd.wav with 8000 samples a second, and the processor wants 16000"),
        (16000, 1, "has odd.wav with 8 bits a sample"),
    ],
)
def test_sound_of_another_kind(whisper: Path, rate: int, width: int, error: str) -> None:
    write_sound(whisper / "odd.wav", rate, width)
    with pytest.raises(ExportError, match=error):
        _processed(whisper, {"audio": ["odd.wav", "odd.wav"]})
