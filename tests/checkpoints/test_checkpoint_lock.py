"""The checkpoint lock: its one form, and that nothing hostile gets through."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from model_export.checkpoint_lock import (
    CheckpointLock,
    CheckpointLockError,
    LockedCheckpoint,
    LockedFile,
    is_pattern,
    is_repo_id,
    is_revision,
)

KEY = "Qwen/Qwen3-0.6B@main"
EMPTY_SHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
CHECKPOINT = LockedCheckpoint(
    repo="Qwen/Qwen3-0.6B",
    revision="main",
    commit="c1899de289a04d12100db370d81485cdf75e47ca",
    license="apache-2.0",
    gated=False,
    pickle=False,
    remote_code=False,
    include=(),
    exclude=(),
    gguf_file=None,
    files=(
        LockedFile("config.json", 726, "1" * 64),
        LockedFile("sub/ünï code.json", 0, EMPTY_SHA256),
    ),
)
TEXT = """\
{
 "checkpoints": {
  "Qwen/Qwen3-0.6B@main": {
   "commit": "c1899de289a04d12100db370d81485cdf75e47ca",
   "exclude": [],
   "files": [
    {
     "path": "config.json",
     "sha256": "1111111111111111111111111111111111111111111111111111111111111111",
     "size": 726
    },
    {
     "path": "sub/\\u00fcn\\u00ef code.json",
     "sha256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
     "size": 0
    }
   ],
   "gated": false,
   "gguf_file": null,
   "include": [],
   "license": "apache-2.0",
   "pickle": false,
   "remote_code": false,
   "repo": "Qwen/Qwen3-0.6B",
   "revision": "main"
  }
 },
 "lock_version": 1
}
"""


def test_has_one_form() -> None:
    lock = CheckpointLock({CHECKPOINT.key: CHECKPOINT})
    assert lock.to_json() == TEXT
    assert CheckpointLock.from_json(TEXT) == lock
    assert CheckpointLock.from_json(TEXT.encode()) == lock


def test_order_and_spacing_do_not_count() -> None:
    document = json.loads(TEXT)
    document["checkpoints"][KEY]["files"].reverse()
    shuffled = json.dumps(document, ensure_ascii=False)
    assert CheckpointLock.from_json(shuffled).to_json() == TEXT


def test_counts_bytes() -> None:
    assert CHECKPOINT.size == 726


HOSTILE_PATHS = {
    "parent": "../config.json",
    "parent inside": "a/../../b",
    "parent at the end": "a/..",
    "dot": ".",
    "dot inside": "a/./b",
    "absolute": "/etc/passwd",
    "two slashes": "//host/share",
    "back slash": "a\\b",
    "back slash parent": "..\\b",
    "drive": "C:/Windows",
    "drive relative": "C:config.json",
    "stream": "config.json:evil",
    "nul": "a\0.json",
    "newline": "a\nb",
    "carriage return": "a\rb",
    "escape": "a\x1b[2Jb",
    "delete": "a\x7f",
    "c1 control": "a\x85b",
    "empty": "",
    "empty part": "a//b",
    "ends in slash": "a/",
    "trailing dot": "a.",
    "trailing space": "a ",
    "folder with trailing dot": "a./b",
    "folder with trailing space": "a /b",
    "leading space": " a",
    "not nfc": "u\u0308.json",
    "full-width dots": "\uff0e\uff0e/b",
    "two-dot leader": "\u2025/b",
    "full-width slash": "a\uff0fb",
    "full-width back slash": "a\uff3cb",
    "full-width colon": "C\uff1aa",
    "right-to-left override": "a\u202enosj.py",
    "zero-width space": "a\u200bb",
    "zero-width joiner": "a\u200db",
    "byte order mark": "\ufeffconfig.json",
    "line separator": "a\u2028b",
    "no-break space": "a\u00a0b",
    "lone surrogate": "a\ud800",
    "private use": "a\ue000",
    "unassigned": "a\u0378",
    "wildcard": "*.json",
    "question mark": "a?.json",
    "quote": 'a".json',
    "pipe": "a|b",
    "long part": "a" * 256,
    "long path": "/".join(["a" * 200] * 6),
    "long in bytes": "\u00e9" * 128,
    "long once compatible": "\ufdfa" * 80,
    "pickle": "model.bin",
    "pickle in capitals": "MODEL.PT",
    "code": "modeling_evil.py",
    "library": "evil.so",
}


@pytest.mark.parametrize("path", HOSTILE_PATHS.values(), ids=HOSTILE_PATHS.keys())
def test_refuses_path(path: str) -> None:
    _refused(lambda entry: entry["files"][0].update(path=path))


HOSTILE_PAIRS = {
    "twice": ("a", "a"),
    "case": ("config.json", "Config.json"),
    "case of a folder": ("a/b", "A/c"),
    "case of a folder and a file": ("a/b", "A"),
    "sharp s": ("stra\u00dfe", "STRASSE"),
    "dotless": ("\u212a", "k"),  # KELVIN SIGN, whose NFC is K.
    "ligature": ("\ufb01le", "file"),
    "file and folder": ("a", "a/b"),
    "folder and file": ("a/b/c", "a/b"),
}


@pytest.mark.parametrize("paths", HOSTILE_PAIRS.values(), ids=HOSTILE_PAIRS.keys())
def test_refuses_paths_together(paths: tuple[str, str]) -> None:
    def change(entry: dict[str, Any]) -> None:
        for file, path in zip(entry["files"], paths, strict=True):
            file["path"] = path

    _refused(change)


HOSTILE_VALUES: dict[str, tuple[str, Any]] = {
    "negative size": ("size", -1),
    "float size": ("size", 1.0),
    "boolean size": ("size", True),
    "text size": ("size", "726"),
    "null size": ("size", None),
    "huge size": ("size", 1 << 60),
    "short sha256": ("sha256", "1" * 63),
    "long sha256": ("sha256", "1" * 65),
    "sha256 in capitals": ("sha256", "A" * 64),
    "sha256 no hex": ("sha256", "g" * 64),
    "sha256 with newline": ("sha256", "1" * 64 + "\n"),
    "sha256 in other digits": ("sha256", "\u0661" * 64),
    "null sha256": ("sha256", None),
    "path a list": ("path", ["a"]),
    "path null": ("path", None),
}


@pytest.mark.parametrize(("name", "value"), HOSTILE_VALUES.values(), ids=HOSTILE_VALUES.keys())
def test_refuses_value_of_file(name: str, value: object) -> None:
    _refused(lambda entry: entry["files"][0].update({name: value}))


HOSTILE_FIELDS: dict[str, tuple[str, Any]] = {
    "commit a branch": ("commit", "main"),
    "commit short": ("commit", "c1899de"),
    "commit in capitals": ("commit", "C" * 40),
    "commit with newline": ("commit", "c" * 40 + "\n"),
    "commit null": ("commit", None),
    "repo with parent": ("repo", "../Qwen3"),
    "repo of three": ("repo", "a/b/c"),
    "repo with query": ("repo", "a/b?c"),
    "repo number": ("repo", 1),
    "revision with parent": ("revision", "refs/../../x"),
    "revision with query": ("revision", "main?x=1"),
    "revision with space": ("revision", "a b"),
    "revision empty": ("revision", ""),
    "revision absolute": ("revision", "/main"),
    "license two lines": ("license", "mit\nevil"),
    "license terminal": ("license", "\x1b[31mmit"),
    "license long": ("license", "m" * 201),
    "license a list": ("license", ["mit"]),
    "gated true": ("gated", True),
    "gated zero": ("gated", 0),
    "gated word": ("gated", "maybe"),
    "gated list": ("gated", []),
    "pickle a word": ("pickle", "no"),
    "pickle one": ("pickle", 1),
    "remote code null": ("remote_code", None),
    "include text": ("include", "*.json"),
    "include parent": ("include", ["../*"]),
    "include absolute": ("include", ["/*"]),
    "include number": ("include", [1]),
    "include unsorted": ("include", ["b", "a"]),
    "exclude twice": ("exclude", ["a", "a"]),
    "exclude too many": ("exclude", [f"{number:04}" for number in range(101)]),
    "gguf other suffix": ("gguf_file", "config.json"),
    "gguf not a file": ("gguf_file", "model.gguf"),
    "gguf list": ("gguf_file", ["model.gguf"]),
    "files null": ("files", None),
    "files none": ("files", []),
    "files object": ("files", {}),
    "files of text": ("files", ["config.json"]),
    "file with more": (
        "files",
        [{"path": "a", "size": 0, "sha256": EMPTY_SHA256, "url": "file:///etc/passwd"}],
    ),
    "file without size": ("files", [{"path": "a", "sha256": EMPTY_SHA256}]),
    "too many files": (
        "files",
        [{"path": str(number), "size": 0, "sha256": EMPTY_SHA256} for number in range(10_001)],
    ),
    "unknown key": ("endpoint", "http://evil"),
}


@pytest.mark.parametrize(("name", "value"), HOSTILE_FIELDS.values(), ids=HOSTILE_FIELDS.keys())
def test_refuses_field(name: str, value: object) -> None:
    _refused(lambda entry: entry.update({name: value}))


@pytest.mark.parametrize("name", json.loads(TEXT)["checkpoints"][KEY])
def test_refuses_missing_field(name: str) -> None:
    _refused(lambda entry: entry.pop(name))


HOSTILE_TEXTS: dict[str, str | bytes] = {
    "empty": "",
    "no json": "checkpoints:",
    "cut": TEXT[:-40],
    "merge conflict": "<<<<<<< ours\n" + TEXT,
    "list": "[]",
    "null": "null",
    "number": "1",
    "no utf-8": TEXT.encode("utf-16"),
    "latin-1": b'{"lock_version": 1, "checkpoints": {"\xfc": {}}}',
    "no version": '{"checkpoints": {}}',
    "no checkpoints": '{"lock_version": 1}',
    "checkpoints a list": '{"lock_version": 1, "checkpoints": []}',
    "entry a list": '{"lock_version": 1, "checkpoints": {"a@main": []}}',
    "newer version": '{"lock_version": 2, "checkpoints": {}}',
    "version true": '{"lock_version": true, "checkpoints": {}}',
    "version 1.0": '{"lock_version": 1.0, "checkpoints": {}}',
    "version text": '{"lock_version": "1", "checkpoints": {}}',
    "more keys": '{"lock_version": 1, "checkpoints": {}, "mirror": "x"}',
    "key twice": TEXT.replace('"size": 0', '"size": 0, "size": 1'),
    "entry twice": '{"lock_version": 1, "checkpoints": {"a@main": {}, "a@main": {}}}',
    "not a number": TEXT.replace("726", "NaN"),
    "infinity": TEXT.replace("726", "-Infinity"),
    "exponent": TEXT.replace("726", "1e400"),
    "million digits": TEXT.replace("726", "9" * 1_000_000),
    "deep lists": "[" * 200_000,
    "deep closed lists": "[" * 200_000 + "]" * 200_000,
    "deep objects": '{"a":' * 200_000,
    "deep inside": TEXT.replace("726", "[" * 100_000 + "]" * 100_000),
    "key of another": TEXT.replace(f'"{KEY}"', '"Qwen/Qwen3-0.6B@v1"'),
    "key with escape": TEXT.replace(f'"{KEY}"', '"\\u001b[31m@main"'),
    "raw control character": TEXT.replace("apache-2.0", "apache\t2.0"),
    "two documents": TEXT + TEXT,
    "byte order mark": "\ufeff" + TEXT,
}


@pytest.mark.parametrize("text", HOSTILE_TEXTS.values(), ids=HOSTILE_TEXTS.keys())
def test_refuses_text(text: str | bytes) -> None:
    with pytest.raises(CheckpointLockError) as caught:
        CheckpointLock.from_json(text)
    _one_line(caught.value)


def test_refuses_text_of_any_length_at_once() -> None:
    with pytest.raises(CheckpointLockError, match="longer than"):
        CheckpointLock.from_json(b" " * ((64 << 20) + 1))


def test_any_change_of_a_character_is_read_or_refused() -> None:
    """Never another exception, and never a lock that can't be written again."""
    drawn = random.Random(4)
    for _ in range(2_000):
        position = drawn.randrange(len(TEXT))
        text = TEXT[:position] + drawn.choice('"{}[],:\\/0-x\n\0é') + TEXT[position + 1 :]
        try:
            lock = CheckpointLock.from_json(text)
        except CheckpointLockError as error:
            _one_line(error)
        else:
            assert CheckpointLock.from_json(lock.to_json()) == lock


def test_allows_pickle_and_code_where_the_entry_does() -> None:
    document = json.loads(TEXT)
    entry = document["checkpoints"][KEY]
    entry["files"][0]["path"] = "pytorch_model.bin"
    entry["files"][1]["path"] = "modeling_own.py"
    entry["pickle"] = entry["remote_code"] = True
    lock = CheckpointLock.from_json(json.dumps(document))
    assert [file.path for file in lock.checkpoints[KEY].files] == [
        "modeling_own.py",
        "pytorch_model.bin",
    ]


def test_knows_ids_revisions_and_patterns() -> None:
    assert all(map(is_repo_id, ("gpt2", "Qwen/Qwen3-0.6B", "a/_b")))
    assert not any(map(is_repo_id, ("a/b/c", "a--b/c", "../a", "a b", "-a", "a/b.", "", "é")))
    assert all(map(is_revision, ("main", "v1.0", "refs/pr/12", "c" * 40, "feat/a+b")))
    assert not any(map(is_revision, ("", "a..b", "/a", "a/", "a//b", "a.lock", "a@{1}", "-a")))
    assert all(map(is_pattern, ("*.json", "sub/*", "model-[0-9].safetensors", "a?c")))
    assert not any(map(is_pattern, ("", "../*", "/a", "a\\b", "a\0")))


def _refused(change: Callable[[dict[str, Any]], object]) -> None:
    """Check that the changed entry is refused, and the same way in any order of its files."""
    document = copy.deepcopy(json.loads(TEXT))
    entry = document["checkpoints"][KEY]
    change(entry)
    with pytest.raises(CheckpointLockError) as caught:
        CheckpointLock.from_json(json.dumps(document))
    _one_line(caught.value)


def _one_line(error: CheckpointLockError) -> None:
    message = str(error)
    assert message.isprintable()
    assert message.isascii()
    assert len(message) < 500
    assert message.startswith("3rdparty/checkpoints.lock.json")
