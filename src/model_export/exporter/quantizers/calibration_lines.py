"""What calibrates, as its files say it: lines of text, chat, images and sound, and which are drawn.

A line of a `.jsonl` file is one sample. Where there is no such file, each image or sound is one.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from model_export.exporter.errors import ExportError
from model_export.exporter.sample_media import MediaFile
from model_export.spec import LINES_SUFFIX, MEDIA_SUFFIXES, ExportSpec

FIELD = "calibration['files']"
# The keys of a line with what they hold, in words too.
_KEYS: Mapping[str, tuple[type, str]] = {
    "text": (str, "a text"),
    "messages": (list, "a list of messages"),
    "image": (str, "the path of an image"),
    "images": (list, "a list of paths"),
    "audio": (str, "the path of a sound"),
}
_PARTS = {"image": "images", "audio": "audio"}
_EXAMPLE = 'Write {"text": "..."}, {"messages": [...]}, {"image": "x.png"} or {"audio": "x.wav"}'


@dataclass(frozen=True)
class CalibrationLine:
    """One sample; `where` is its file, with the number of the line in a file of lines.

    It has `text`, or `messages` for the chat template, or neither beside images or sound, which
    are in the order of their placeholders.
    """

    where: str
    text: str | None = None
    messages: tuple[Any, ...] | None = None
    images: tuple[MediaFile, ...] = ()
    audio: tuple[MediaFile, ...] = ()

    @property
    def has_text(self) -> bool:
        """Whether there is something for a tokenizer."""
        return self.text is not None or self.messages is not None

    def media(self, kind: str) -> tuple[MediaFile, ...]:
        """The "images", or the "audio"."""
        return self.images if kind == "images" else self.audio


def choose_lines(spec: ExportSpec, folder: Path) -> list[CalibrationLine]:
    """The lines that calibrate: `samples` of all, drawn with `seed`, in the order drawn.

    The same lines on every machine: NumPy's PCG64 is specified bit by bit. Raises ExportError for
    a line that isn't as `_KEYS` says, and for one that names a file that didn't come along.
    """
    assert spec.calibration is not None
    files: Sequence[str] = spec.calibration["files"]
    texts = _of_lines(files)
    if texts:
        lines = [line for path in texts for line in _read(folder, path, frozenset(files))]
    else:
        lines = [_alone(folder, path) for path in files]
    if not lines:
        raise ExportError(FIELD, "have no line", 'Write one JSON object a line: {"text": "..."}')
    draw = np.random.Generator(np.random.PCG64(spec.calibration["seed"]))
    order = draw.permutation(len(lines))[: spec.calibration["samples"]]
    return [lines[index] for index in order]


def files_read(spec: ExportSpec, folder: Path) -> tuple[str, ...]:
    """The files of lines, and what the drawn ones name, in the order of their paths."""
    assert spec.calibration is not None
    read = set(_of_lines(spec.calibration["files"]))
    for line in choose_lines(spec, folder):
        for file in (*line.images, *line.audio):
            read.add(file.path.relative_to(folder).as_posix())
    return tuple(sorted(read))


def _of_lines(files: Sequence[str]) -> list[str]:
    return [path for path in files if path.lower().endswith(LINES_SUFFIX)]


def _alone(folder: Path, path: str) -> CalibrationLine:
    file = (MediaFile(folder / path, path, FIELD),)
    if path.lower().endswith(MEDIA_SUFFIXES["audio"]):
        return CalibrationLine(path, audio=file)
    return CalibrationLine(path, images=file)


def _read(folder: Path, name: str, files: frozenset[str]) -> Iterator[CalibrationLine]:
    text = (folder / name).read_text(encoding="utf-8")
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        where = f"{name}, line {number}"
        try:
            value = json.loads(line)
        except json.JSONDecodeError as error:
            raise ExportError(
                FIELD, f"have no JSON in {where} ({error.msg})", "Correct the line"
            ) from error
        yield _parse(value, where, partial(_find, folder, name, where, files))


def _parse(value: Any, where: str, find: Callable[[Any], MediaFile]) -> CalibrationLine:
    """The line at `where`; `find` makes files of the names in it."""
    keys = [key for key in _KEYS if isinstance(value, dict) and value.get(key)]
    if not keys:
        raise ExportError(FIELD, f"have none of {', '.join(_KEYS)} in {where}", _EXAMPLE)
    for key in keys:
        expected, words = _KEYS[key]
        if not isinstance(value[key], expected):
            raise ExportError(FIELD, f"have a `{key}` that isn't {words} in {where}", _EXAMPLE)
    for one, other in (("text", "messages"), ("image", "images")):
        if one in keys and other in keys:
            raise ExportError(FIELD, f"have `{one}` and `{other}` in {where}", "Write one of them")
    found = {
        "images": [value["image"]] if "image" in keys else list(value.get("images") or ()),
        "audio": [value["audio"]] if "audio" in keys else [],
    }
    messages = tuple(value["messages"]) if "messages" in keys else None
    for kind, names in _named_in(messages or (), where).items():
        if names and found[kind]:
            raise ExportError(
                FIELD,
                f"name {kind} in the messages and beside them in {where}",
                "Name them in one of the two places",
            )
        found[kind] += names
    return CalibrationLine(
        where,
        value["text"] if "text" in keys else None,
        messages,
        **{kind: tuple(map(find, names)) for kind, names in found.items()},
    )


def _named_in(messages: Sequence[Any], where: str) -> dict[str, list[Any]]:
    """The files that messages name, as transformers has them: {"type": "image", "path": "..."}.

    A part without a path stands for one of the line's own files.
    """
    found: dict[str, list[Any]] = {kind: [] for kind in _PARTS.values()}
    contents = [message.get("content") for message in messages if isinstance(message, dict)]
    parts = [part for content in contents if isinstance(content, list) for part in content]
    for part in parts:
        kind = part.get("type") if isinstance(part, dict) else "text"
        if kind not in ("text", *_PARTS) or (kind in _PARTS and "url" in part):
            raise ExportError(
                FIELD,
                f"have a part that isn't text, an image's path or a sound's path in {where}",
                'Write {"type": "image", "path": "x.png"} or {"type": "audio", "path": "x.wav"}',
            )
        if kind in _PARTS and (name := part.get("path", part.get(kind))) is not None:
            found[_PARTS[kind]].append(name)
    return found


def _find(folder: Path, lines: str, where: str, files: frozenset[str], name: Any) -> MediaFile:
    """The file at a path from that of the lines on, which has to be one of `files`."""
    if not isinstance(name, str) or not name:
        raise ExportError(FIELD, f"name {name!r} in {where}", "Name files by their paths")
    path = posixpath.normpath(posixpath.join(posixpath.dirname(lines), name))
    if path not in files:
        raise ExportError(
            FIELD,
            f"don't have {path}, which {where} names",
            "Add a `file` or `files` target that has it",
        )
    return MediaFile(folder / path, f"{path} ({where})", FIELD)
