"""Calibration on sound: what the model is called with, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from exporter.backends.tiny_models import generation_spec, tiny_whisper
from exporter.calibrating import batches_of, calibration_of
from exporter.media_files import (
    write_image,
    write_sound,
    write_whisper,
)
from model_export.exporter.errors import ExportError
from model_export.exporter.quantizers.calibration import component_inputs


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Sounds, an image, and a folder for the files of a checkpoint."""
    write_image(tmp_path / "red.png", (255, 0, 0))
    write_sound(tmp_path / "low.wav", tone=200)
    write_sound(tmp_path / "high.wav", tone=4000)
    write_sound(tmp_path / "slow.wav", rate=8000)
    (tmp_path / "checkpoint").mkdir()
    return tmp_path


def _hear(folder: Path, lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    write_whisper(folder / "checkpoint")
    calibration = calibration_of(folder, lines)
    spec = generation_spec("onnx", {}, calibration=calibration)
    return batches_of(folder, tiny_whisper(), {"input_features": torch.zeros(2, 16, 100)}, spec)


def test_a_model_that_hears(folder: Path) -> None:
    (batch,) = _hear(folder, [{"audio": "low.wav"}, {"audio": "high.wav"}])
    low, high = batch["input_features"]
    assert low.shape == high.shape == (16, 100)
    # The bins are of rising pitch.
    assert low[:, :45].mean(dim=1).argmax() < high[:, :45].mean(dim=1).argmax()
    found = component_inputs(tiny_whisper(), iter([batch]), generation_spec("onnx", {}))
    (encoded,) = found["encoder"]
    assert encoded["input_features"].equal(batch["input_features"])
    assert len(found["decode"]) >= 1


def test_sound_without_lines(folder: Path) -> None:
    for path in [*folder.glob("*.png"), folder / "slow.wav"]:
        path.unlink()
    (batch,) = _hear(folder, [])
    high, low = batch["input_features"]
    assert low[:, :45].mean(dim=1).argmax() < high[:, :45].mean(dim=1).argmax()


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            [{"audio": "slow.wav"}],
            r"has slow.wav \(x.jsonl, line 1\) with 8000 samples a second, and the processor wants",
        ),
        ([{"audio": "red.png"}], r"has red.png \(x.jsonl, line 1\), which is no WAV file"),
        ([{"audio": "low.wav", "text": "Hi"}], r"text in x.jsonl, line 1, and WhisperFor"),
    ],
)
def test_sound_of_another_kind(folder: Path, lines: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(ExportError, match=message):
        _hear(folder, lines)
