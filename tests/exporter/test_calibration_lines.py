"""Lines of calibration files that name images and sound."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from exporter.backends.tiny_models import make_spec
from model_export.exporter.errors import ExportError
from model_export.exporter.quantizers.calibration_lines import choose_lines, files_read
from model_export.spec import ExportSpec

_FILES = ["a/b/x.jsonl", "a/cat.png", "a/b/dog.png", "c/song.wav"]


def _spec(files: list[str], samples: int = 64) -> ExportSpec:
    calibration = {"files": files, "samples": samples, "seed": 0, "max_length": 128}
    return make_spec("onnx", {"dynamic": True}, calibration=calibration)


def _write(folder: Path, *lines: Any) -> None:
    (folder / "a/b").mkdir(parents=True)
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "a/b/x.jsonl").write_text(text, encoding="utf-8")


_CHAT = {
    "role": "user",
    "content": [
        {"type": "image", "path": "dog.png"},
        {"type": "text", "text": "and"},
        {"type": "image", "image": "../cat.png"},
        {"type": "audio", "path": "../../c/song.wav"},
    ],
}


@pytest.mark.parametrize(
    ("line", "text", "images", "audio"),
    [
        ({"image": "dog.png"}, None, ["a/b/dog.png"], []),
        ({"image": "../cat.png", "text": "<image>"}, "<image>", ["a/cat.png"], []),
        ({"images": ["dog.png", "../cat.png"]}, None, ["a/b/dog.png", "a/cat.png"], []),
        ({"audio": "../../c/song.wav", "text": "<audio>"}, "<audio>", [], ["c/song.wav"]),
        ({"messages": [_CHAT]}, None, ["a/b/dog.png", "a/cat.png"], ["c/song.wav"]),
        (
            {"messages": [{"content": [{"type": "image"}]}], "image": "dog.png"},
            None,
            ["a/b/dog.png"],
            [],
        ),
    ],
)
def test_paths_start_at_the_file_of_lines(
    line: dict[str, Any], text: str | None, images: list[str], audio: list[str], tmp_path: Path
) -> None:
    _write(tmp_path, line)
    (found,) = choose_lines(_spec(_FILES), tmp_path)
    assert found.text == text
    assert found.messages == (tuple(line["messages"]) if "messages" in line else None)
    assert [file.path for file in found.images] == [tmp_path / path for path in images]
    assert [file.path for file in found.audio] == [tmp_path / path for path in audio]
    assert files_read(_spec(_FILES), tmp_path) == tuple(sorted(["a/b/x.jsonl", *images, *audio]))


def test_lines_are_known_by_their_suffix_in_any_case(tmp_path: Path) -> None:
    (tmp_path / "X.JSONL").write_text('{"text": "a b"}\n', encoding="utf-8")
    spec = _spec(["X.JSONL", "cat.png"])
    (found,) = choose_lines(spec, tmp_path)
    assert found.text == "a b"
    assert files_read(spec, tmp_path) == ("X.JSONL",)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            {"image": "cat.png"},
            r"don't have a/b/cat.png, which a/b/x.jsonl, line 2 names. Add a `file` or `files`",
        ),
        ({"image": "../../../secret.png"}, r"don't have ../secret.png"),
        ({"image": "/a/cat.png"}, r"don't have /a/cat.png"),
        ({"image": ["dog.png"]}, r"a `image` that isn't the path of an image in a/b/x.jsonl"),
        ({"images": "dog.png"}, r"a `images` that isn't a list of paths in a/b/x.jsonl, line 2"),
        ({"images": [3]}, r"name 3 in a/b/x.jsonl, line 2"),
        ({"image": "dog.png", "images": ["dog.png"]}, r"`image` and `images` in a/b/x.jsonl"),
        ({"messages": [_CHAT], "image": "dog.png"}, r"in the messages and beside them in a/b"),
        (
            {"messages": [{"content": [{"type": "image", "url": "https://x.org/a.png"}]}]},
            r"a part that isn't text, an image's path or a sound's path in a/b/x.jsonl, line 2",
        ),
        ({"messages": [{"content": [{"type": "video", "path": "a.mp4"}]}]}, "a part that isn't"),
    ],
)
def test_a_wrong_line_is_named(line: dict[str, Any], message: str, tmp_path: Path) -> None:
    _write(tmp_path, {"text": "a"}, line)
    with pytest.raises(ExportError, match=message):
        choose_lines(_spec(_FILES), tmp_path)


def test_files_without_lines_are_one_sample_each(tmp_path: Path) -> None:
    files = [f"p/{number:02}.PNG" for number in range(20)]
    lines = choose_lines(_spec(files), tmp_path)
    assert sorted(line.where for line in lines) == files
    assert all(line.images[0].path == tmp_path / line.where for line in lines)
    assert not any(line.audio or line.has_text for line in lines)
    (sound,) = choose_lines(_spec(["a.wav"]), tmp_path)
    assert [file.path for file in sound.audio] == [tmp_path / "a.wav"] and not sound.images


def test_only_what_is_drawn_is_read(tmp_path: Path) -> None:
    files = [f"{number:02}.png" for number in range(20)]
    spec = _spec(files, samples=5)
    drawn = [line.where for line in choose_lines(spec, tmp_path)]
    assert drawn == [line.where for line in choose_lines(_spec(files), tmp_path)][:5]
    assert files_read(spec, tmp_path) == tuple(sorted(drawn))
