"""Ranges that ONNX Runtime's quantizer observes on images of files."""

from __future__ import annotations

import json
from pathlib import Path

import onnx_ir
import pytest
from PIL import Image

from exporter.backends.quantized import export_quantized, quantized_spec
from exporter.backends.tiny_models import tiny_vit
from exporter.backends.tiny_multimodal import tiny_llava
from exporter.media_files import IMAGE, write_image, write_llava, write_vit
from model_export.manifest import record_files, sha256_of
from model_export.spec import CALIBRATION_FOLDER, SAMPLES_FOLDER
from verifier.artifacts import Built

_STATIC = {"type": "OnnxRuntimeQuantizer", "config": "OnnxRuntimeStaticConfig"}
_NNCF = {"type": "NNCFOnnxQuantizer"}


def _export(
    folder: Path,
    shades: dict[str, int],
    monkeypatch: pytest.MonkeyPatch,
    quantizer: dict[str, str] = _STATIC,
    lines: list[str] | None = None,
    samples: int = 64,
) -> Built:
    """An export that calibrates on images of 20 x 20, black to their own shade of gray."""
    images = folder / CALIBRATION_FOLDER / "pictures"
    images.mkdir(parents=True)
    for name, shade in shades.items():
        image = Image.new("L", (20, 20), shade)
        image.paste(0, (0, 0, 20, 10))
        image.save(images / f"{name}.png")
    files = [f"pictures/{name}.png" for name in sorted(shades)]
    if lines is not None:
        text = "".join(json.dumps({"image": f"{name}.png"}) + "\n" for name in lines)
        (images / "lines.jsonl").write_text(text, encoding="utf-8")
        files.append("pictures/lines.jsonl")
    (folder / "checkpoint").mkdir()
    write_vit(folder / "checkpoint")
    monkeypatch.chdir(folder)
    calibration = {"files": files, "samples": samples, "seed": 0, "max_length": 128}
    model = tiny_vit()
    spec = quantized_spec(model, "onnx", quantizer, calibration=calibration)
    return export_quantized(model, spec, folder)


def _range_of_pixels(built: Built) -> tuple[float, float]:
    """The lowest and the highest pixel that the graph knows."""
    graph = onnx_ir.load(built.artifact / "model.onnx").graph
    (rounding,) = (
        node
        for node in graph
        if node.op_type == "QuantizeLinear" and node.inputs[0].name == "pixel_values"
    )
    scale, zero = (value.const_value.numpy().item() for value in rounding.inputs[1:3])
    return scale * (-128 - zero), scale * (127 - zero)


# As the processor makes them: black is -1, white is 1, and 191 is 191 / 127.5 - 1.
@pytest.mark.parametrize(("shade", "highest"), [(255, 1.0), (191, 0.498)])
def test_pixels_have_the_range_of_the_images(
    shade: int, highest: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = _export(tmp_path, {"a": 0, "b": shade}, monkeypatch)
    assert _range_of_pixels(built) == pytest.approx((-1, highest), abs=0.02)
    assert built.verify().failure is None


@pytest.mark.parametrize("quantizer", [_STATIC, _NNCF], ids=["onnxruntime", "nncf"])
def test_the_same_images_are_the_same_bytes(
    quantizer: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shades = {"a": 60, "b": 200}
    one, other, third = (
        _export(tmp_path / name, chosen, monkeypatch, quantizer)
        for name, chosen in (("1", shades), ("2", shades), ("3", {"a": 60, "b": 90}))
    )
    assert record_files(one.artifact) == record_files(other.artifact)
    assert one.manifest == other.manifest
    assert record_files(one.artifact) != record_files(third.artifact)


def test_the_manifest_names_what_was_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shades = {"a": 0, "b": 255, "unnamed": 191}
    built = _export(tmp_path, shades, monkeypatch, lines=["a", "b"], samples=1)
    record = built.manifest.calibration
    assert record is not None
    assert (record.source, record.batches) == ("files", {"model": 1})
    paths = [file.path for file in record.files]
    assert paths in (
        ["pictures/a.png", "pictures/lines.jsonl"],
        ["pictures/b.png", "pictures/lines.jsonl"],
    )
    for file in record.files:
        assert file.sha256 == sha256_of(tmp_path / CALIBRATION_FOLDER / file.path)
    # One of the two: black alone, or up to white.
    highest = -1 if "pictures/a.png" in paths else 1
    assert _range_of_pixels(built)[1] == pytest.approx(max(highest, 0), abs=0.02)


def test_components_of_a_model_that_sees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    samples, calibration = tmp_path / SAMPLES_FOLDER, tmp_path / CALIBRATION_FOLDER
    for folder in (samples, calibration, tmp_path / "checkpoint"):
        folder.mkdir()
    for folder in (samples, calibration):
        write_image(folder / "red.png", (255, 0, 0))
    lines = [
        {"image": "red.png", "text": "<image> what is this ?"},
        {"image": "red.png", "text": "<image> Hi"},
        {"text": "what is this ?"},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (calibration / "x.jsonl").write_text(text, encoding="utf-8")
    write_llava(tmp_path / "checkpoint")
    monkeypatch.chdir(tmp_path)
    model = tiny_llava()
    model.config.image_token_id = IMAGE
    spec = quantized_spec(
        model,
        "onnx",
        _STATIC,
        sample_inputs={
            "text": ["<image> what is this ?", "<image> Hi"],
            "images": ["red.png", "red.png"],
        },
        calibration={
            "files": ["red.png", "x.jsonl"],
            "samples": 64,
            "seed": 0,
            "max_length": 128,
        },
    )
    built = export_quantized(model, spec, tmp_path)
    record = built.manifest.calibration
    assert record is not None
    # Two of two rows, the last of which is the first line once more: one at most is text alone.
    assert set(record.batches.values()) == {2}
    assert {"image_encoder", "language_model", "decode"} <= record.batches.keys()
    assert [file.path for file in record.files] == ["red.png", "x.jsonl"]
    rounding = {
        part.name: any(
            node.op_type == "QuantizeLinear"
            for node in onnx_ir.load(built.artifact / part.file).graph
        )
        for part in built.manifest.components
    }
    assert all(rounding[name] for name in ("image_encoder", "language_model", "decode"))
