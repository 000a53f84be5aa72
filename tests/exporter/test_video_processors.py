"""Processors of models that see videos as well, without torchvision."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from transformers import AutoProcessor, ProcessorMixin

from exporter.media_files import write_json, write_qwen2_vl
from model_export.exporter.video_processors import no_videos

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torchvision") is not None, reason="needs no workaround here"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_qwen2_vl(tmp_path)
    write_json(tmp_path, "config.json", {"model_type": "qwen2_vl"})
    return tmp_path


def test_upstream_still_wants_torchvision(folder: Path) -> None:
    """If this fails, `no_videos` is no longer needed."""
    with pytest.raises(ImportError, match="requires the Torchvision library"):
        AutoProcessor.from_pretrained(folder, local_files_only=True)


def test_it_loads_without(folder: Path) -> None:
    before = ProcessorMixin.check_argument_for_proper_class
    with no_videos():
        processor = AutoProcessor.from_pretrained(folder, local_files_only=True)
    assert type(processor).__name__ == "Qwen2VLProcessor"
    assert {"input_ids", "pixel_values", "image_grid_thw", "mm_token_type_ids"} <= set(
        processor.model_input_names
    )
    assert ProcessorMixin.check_argument_for_proper_class is before
