"""Calibration on images: what the model is called with, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    PreTrainedModel,
    RegNetConfig,
    RegNetModel,
    ViTConfig,
    ViTForImageClassification,
)

from exporter.backends.tiny_models import generation_spec, left_padded, make_spec, tiny_bert
from exporter.backends.tiny_multimodal import (
    llava_inputs,
    qwen2_vl_inputs,
    tiny_llava,
    tiny_qwen2_vl,
)
from exporter.calibrating import batches_of, calibration_of
from exporter.media_files import (
    IMAGE,
    QWEN2_VL,
    WORDS,
    write_image,
    write_json,
    write_llava,
    write_qwen2_vl,
    write_sound,
    write_vit,
)
from model_export.exporter.errors import ExportError
from model_export.exporter.quantizers.calibration import component_inputs

_COLORS = {"red": (255, 0, 0), "green": (0, 255, 0), "blue": (0, 0, 255)}
# By mean and deviation of one half, the channels of red are 1, -1 and -1.
_CHANNELS = {name: [color / 127.5 - 1 for color in colors] for name, colors in _COLORS.items()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Images, sounds that a model of images can't take, and a folder for a checkpoint."""
    for name, color in _COLORS.items():
        write_image(tmp_path / f"{name}.png", color)
    write_sound(tmp_path / "low.wav", tone=200)
    write_sound(tmp_path / "high.wav", tone=4000)
    write_sound(tmp_path / "slow.wav", rate=8000)
    (tmp_path / "broken.png").write_text("no image")
    (tmp_path / "checkpoint").mkdir()
    return tmp_path


def _vit(size: int = 16) -> ViTForImageClassification:
    torch.manual_seed(0)
    config = ViTConfig(
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        image_size=size,
        patch_size=8,
    )
    return ViTForImageClassification(config).eval()


def _see(
    folder: Path, lines: list[dict[str, Any]], dynamic: bool = True, **fields: Any
) -> list[dict[str, Any]]:
    write_vit(folder / "checkpoint")
    spec = make_spec(
        "onnx", {"dynamic": dynamic}, calibration=calibration_of(folder, lines, **fields)
    )
    return batches_of(folder, _vit(), {"pixel_values": torch.zeros(2, 3, 16, 16)}, spec)


def test_a_model_of_images_alone(folder: Path) -> None:
    first, second = _see(folder, [{"image": f"{name}.png"} for name in _COLORS])
    assert list(first) == ["pixel_values"]
    seen = [*first["pixel_values"], *second["pixel_values"]]
    # The last batch is filled up from the start.
    for image, name in zip(seen, [*_COLORS, "red"], strict=True):
        assert image.shape == (3, 16, 16)
        assert image.mean(dim=(1, 2)).tolist() == pytest.approx(_CHANNELS[name])


def test_a_model_whose_class_does_not_say_that_it_sees(folder: Path) -> None:
    """transformers 5.24.0: RegNet has the default, text."""
    config = RegNetConfig(embedding_size=8, hidden_sizes=[8], depths=[1], groups_width=8)
    model = RegNetModel(config).eval()
    write_vit(folder / "checkpoint")
    calibration = calibration_of(folder, [{"image": "red.png"}])
    spec = make_spec("onnx", {"dynamic": True}, calibration=calibration)
    (batch,) = batches_of(folder, model, {"pixel_values": torch.zeros(2, 3, 16, 16)}, spec)
    assert batch["pixel_values"].shape == (2, 3, 16, 16)


def test_images_without_lines(folder: Path) -> None:
    for path in [*folder.glob("*.wav"), folder / "broken.png"]:
        path.unlink()
    first, second = _see(folder, [])
    seen = [*first["pixel_values"], *second["pixel_values"]]
    for image, name in zip(seen, ["blue", "green", "red", "blue"], strict=True):
        assert image.mean(dim=(1, 2)).tolist() == pytest.approx(_CHANNELS[name])


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            [{"image": "red.png"}, {"image": "broken.png"}],
            r"has broken.png \(x.jsonl, line 2\), which is no image",
        ),
        ([{"image": "red.png", "text": "red"}], r"text in x.jsonl, line 1, and ViTForImageClassif"),
        ([{"images": ["red.png", "blue.png"]}], r"2 files in x.jsonl, line 1, and ViT.* takes one"),
        ([{"audio": "low.wav"}], r"have audio in x.jsonl, line 1, and ViTForImage.* takes none"),
        ([{"text": "red"}], r"hold text, and ViTForImageClassification is fed something else"),
    ],
)
def test_lines_that_a_model_of_images_can_not_take(
    folder: Path, lines: list[dict[str, Any]], message: str
) -> None:
    with pytest.raises(ExportError, match=message):
        _see(folder, lines)


def test_a_processor_of_another_size(folder: Path) -> None:
    write_vit(folder / "checkpoint", size=32)
    traced = {"pixel_values": torch.zeros(2, 3, 16, 16)}
    calibration = calibration_of(folder, [{"image": "red.png"}])
    spec = make_spec("onnx", {"dynamic": True}, calibration=calibration)
    with pytest.raises(ExportError, match=r"inputs that ViTFor.* refuses \(.*\): x.jsonl, line 1"):
        batches_of(folder, _vit(), traced, spec)
    spec = make_spec("onnx", {"dynamic": False}, calibration=calibration)
    with pytest.raises(ExportError, match=r"`pixel_values` \[2, 3, 32, 32\], where the graph has"):
        batches_of(folder, _vit(), traced, spec)


def test_no_processor(folder: Path) -> None:
    calibration = calibration_of(folder, [{"image": "red.png"}])
    spec = make_spec("onnx", {"dynamic": True}, calibration=calibration)
    with pytest.raises(ExportError, match=r"needs a processor, and the checkpoint has none. Add"):
        batches_of(folder, _vit(), {"pixel_values": torch.zeros(2, 3, 16, 16)}, spec)


def test_images_for_a_model_of_text(folder: Path) -> None:
    write_llava(folder / "checkpoint")
    calibration = calibration_of(folder, [{"text": "Hi"}, {"image": "red.png", "text": "<image>"}])
    spec = make_spec("onnx", {"dynamic": True}, calibration=calibration)
    with pytest.raises(
        ExportError, match=r"have images in x.jsonl, line 2, and BertModel takes none. .* of text"
    ):
        batches_of(folder, tiny_bert(), left_padded(2, 8, 3), spec)


def _llava() -> PreTrainedModel:
    model = tiny_llava()
    model.config.image_token_id = IMAGE
    return model


def _see_and_read(
    folder: Path,
    lines: list[dict[str, Any]],
    traced: dict[str, Any] | None = None,
    dynamic: bool = True,
    **fields: Any,
) -> list[dict[str, Any]]:
    write_llava(folder / "checkpoint")
    spec = generation_spec(
        "onnx", {"dynamic": dynamic}, calibration=calibration_of(folder, lines, **fields)
    )
    return batches_of(folder, _llava(), traced or llava_inputs(), spec)


def test_a_model_that_sees_and_reads(folder: Path) -> None:
    (batch,) = _see_and_read(
        folder,
        [
            {"image": "red.png", "text": "<image> what is this ?"},
            {"images": ["blue.png", "green.png"], "text": "<image> <image> Hi"},
        ],
    )
    # One placeholder becomes one for each of four patches. The mask isn't of ones alone.
    words = [WORDS[word] for word in ("what", "is", "this", "?")]
    assert batch["input_ids"].tolist() == [
        [0] + [IMAGE] * 4 + words,
        [IMAGE] * 8 + [WORDS["Hi"]],
    ]
    assert batch["attention_mask"].tolist() == [[0] + [1] * 8, [1] * 9]
    for image, name in zip(batch["pixel_values"], ["red", "blue", "green"], strict=True):
        assert image.mean(dim=(1, 2)).tolist() == pytest.approx(_CHANNELS[name])


def test_messages_with_images(folder: Path) -> None:
    template = (
        "{% for m in messages %}{% for part in m.content %}"
        "{{ '<image>' if part.type == 'image' else part.text }} "
        "{% endfor %}{% endfor %}"
    )
    (folder / "checkpoint" / "chat_template.jinja").write_text(template)
    content = [{"type": "image", "path": "red.png"}, {"type": "text", "text": "Hi"}]
    (batch,) = _see_and_read(folder, [{"messages": [{"role": "user", "content": content}]}])
    assert batch["input_ids"].tolist() == [[0] + [IMAGE] * 4 + [WORDS["Hi"]]] * 2
    assert batch["pixel_values"].shape == (2, 3, 16, 16)


def test_text_alone_for_a_model_that_also_sees(folder: Path) -> None:
    lines = [{"text": "what is this ?"}, {"text": "Hi"}]
    (batch,) = _see_and_read(folder, lines, max_length=3)
    assert sorted(batch) == ["attention_mask", "input_ids"]
    assert batch["input_ids"].tolist() == [[5, 6, 7], [0, 0, WORDS["Hi"]]]


def test_each_component_of_a_model_that_sees(folder: Path) -> None:
    batches = _see_and_read(
        folder,
        [
            {"image": "red.png", "text": "<image> what is this ?"},
            {"image": "blue.png", "text": "<image> Hi"},
            {"text": "what is this ?"},
            {"text": "Hi"},
        ],
    )
    found = component_inputs(_llava(), iter(batches), generation_spec("onnx", {}))
    assert {name: len(calls) for name, calls in found.items()} == {
        "image_encoder": 1,
        "multi_modal_projector": 1,
        "embed_tokens": 2,
        "language_model": 2,
        "lm_head": 2,
        "decode": 2,
    }
    (encoded,) = found["image_encoder"]
    assert encoded["pixel_values"].equal(batches[0]["pixel_values"])


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([{"image": "red.png"}], r"no text in x.jsonl, line 1, and LlavaFor.* takes one"),
        (
            [{"image": "red.png", "text": "Hi"}],
            r"LlavaProcessor refuses \(.*\): x.jsonl, line 1. Write the processor's own",
        ),
        (
            [{"image": "red.png", "messages": [{"role": "user", "content": "Hi"}]}],
            r"`messages` in x.jsonl, line 1, and the checkpoint has no chat template",
        ),
    ],
)
def test_lines_that_a_model_that_sees_can_not_take(
    folder: Path, lines: list[dict[str, Any]], message: str
) -> None:
    with pytest.raises(ExportError, match=message):
        _see_and_read(folder, lines)


def test_images_for_an_export_that_was_traced_without(folder: Path) -> None:
    lines = [{"image": "red.png", "text": "<image> Hi"}]
    with pytest.raises(ExportError, match=r"images in x.jsonl, line 1, and the model is traced wi"):
        _see_and_read(folder, lines, traced=dict(left_padded(2, 8, 3)))


def test_lines_that_leave_out_an_input_of_the_one_graph(folder: Path) -> None:
    write_llava(folder / "checkpoint")
    calibration = calibration_of(folder, [{"text": "Hi"}])
    spec = make_spec("onnx", {"dynamic": True}, calibration=calibration)
    with pytest.raises(ExportError, match=r"make no `pixel_values` for LlavaFor.*: x.jsonl, line"):
        batches_of(folder, _llava(), llava_inputs(), spec)


def test_a_template_that_refuses(folder: Path) -> None:
    (folder / "checkpoint" / "chat_template.jinja").write_text("{{ raise_exception('no users') }}")
    line = {"image": "red.png", "messages": [{"role": "user", "content": "Hi"}]}
    with pytest.raises(ExportError, match=r"chat template refuses \(.*no users\): x.jsonl, line 1"):
        _see_and_read(folder, [line])


def test_placeholders_that_the_model_refuses(folder: Path) -> None:
    lines = [{"image": "red.png", "text": "<image> Hi"}]
    (batch,) = _see_and_read(folder, lines)
    # As of a processor that writes another placeholder than the model has.
    batch["input_ids"][batch["input_ids"] == IMAGE] = WORDS["what"]
    spec = generation_spec("onnx", {}, calibration=calibration_of(folder, lines))
    with pytest.raises(ExportError, match=r"inputs that LlavaFor.* refuses \(.*\): batch 1 of"):
        component_inputs(_llava(), iter([batch]), spec)


def test_static_sizes(folder: Path) -> None:
    lines = [{"image": "red.png", "text": "<image> Hi"}, {"image": "red.png", "text": "<image>"}]
    (batch,) = _see_and_read(folder, lines, traced=llava_inputs(length=8), dynamic=False)
    assert batch["input_ids"].tolist() == [[0] * 3 + [IMAGE] * 4 + [9], [0] * 4 + [IMAGE] * 4]
    with pytest.raises(ExportError, match=r"`input_ids` \[2, 9\], where the graph has \[2, 8\]: x"):
        _see_and_read(
            folder,
            [{"image": "red.png", "text": "<image> Hi Hi Hi Hi Hi"}],
            traced=llava_inputs(length=8),
            dynamic=False,
        )


def test_images_of_any_size(folder: Path) -> None:
    write_qwen2_vl(folder / "checkpoint")
    write_json(folder / "checkpoint", "config.json", {"model_type": "qwen2_vl"})
    write_image(folder / "wide.png", _COLORS["blue"], size=(16, 8))
    place = "<|vision_start|><|image_pad|><|vision_end|>"
    calibration = calibration_of(
        folder,
        [
            {"image": "red.png", "text": f"{place} what is this ?"},
            {"image": "wide.png", "text": f"{place} Hi"},
        ],
    )
    spec = generation_spec("onnx", {}, calibration=calibration)
    model = tiny_qwen2_vl()
    (batch,) = batches_of(folder, model, qwen2_vl_inputs(), spec)
    assert sorted(batch) == sorted(qwen2_vl_inputs())
    # Patches of 4 x 4, of which 2 x 2 become one vector.
    assert batch["image_grid_thw"].tolist() == [[1, 4, 4], [1, 2, 4]]
    assert (batch["input_ids"] == QWEN2_VL["<|image_pad|>"]).sum(dim=1).tolist() == [4, 2]
    found = component_inputs(model, iter([batch]), generation_spec("onnx", {}))
    (encoded,) = found["image_encoder"]
    assert encoded["hidden_states"].shape == (24, 96)
