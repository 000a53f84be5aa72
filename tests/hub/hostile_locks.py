"""A checkpoint lock as it should be, and what strangers may make of it.

Python 3.9, because the plugin's tests read them too.
"""

from __future__ import annotations

import copy
import json
from typing import Any, Callable, Union

LOCK_KEY = "Qwen/Qwen3-0.6B@main"
EMPTY_SHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
LOCK_TEXT = """\
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


_PAIRS = {
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


_VALUES: dict[str, tuple[str, Any]] = {
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


_FIELDS: dict[str, tuple[str, Any]] = {
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


_TEXTS: dict[str, Union[str, bytes]] = {
    "empty": "",
    "no json": "checkpoints:",
    "cut": LOCK_TEXT[:-40],
    "merge conflict": "<<<<<<< ours\n" + LOCK_TEXT,
    "list": "[]",
    "null": "null",
    "number": "1",
    "no utf-8": LOCK_TEXT.encode("utf-16"),
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
    "key twice": LOCK_TEXT.replace('"size": 0', '"size": 0, "size": 1'),
    "entry twice": '{"lock_version": 1, "checkpoints": {"a@main": {}, "a@main": {}}}',
    "not a number": LOCK_TEXT.replace("726", "NaN"),
    "infinity": LOCK_TEXT.replace("726", "-Infinity"),
    "exponent": LOCK_TEXT.replace("726", "1e400"),
    "million digits": LOCK_TEXT.replace("726", "9" * 1_000_000),
    "deep lists": "[" * 200_000,
    "deep closed lists": "[" * 200_000 + "]" * 200_000,
    "deep objects": '{"a":' * 200_000,
    "deep inside": LOCK_TEXT.replace("726", "[" * 100_000 + "]" * 100_000),
    "key of another": LOCK_TEXT.replace(f'"{LOCK_KEY}"', '"Qwen/Qwen3-0.6B@v1"'),
    "key with escape": LOCK_TEXT.replace(f'"{LOCK_KEY}"', '"\\u001b[31m@main"'),
    "raw control character": LOCK_TEXT.replace("apache-2.0", "apache\t2.0"),
    "two documents": LOCK_TEXT + LOCK_TEXT,
    "byte order mark": "\ufeff" + LOCK_TEXT,
}


def _changed(change: Callable[[dict[str, Any]], object]) -> bytes:
    document = copy.deepcopy(json.loads(LOCK_TEXT))
    change(document["checkpoints"][LOCK_KEY])
    return json.dumps(document).encode()


def _set_path(path: str) -> Callable[[dict[str, Any]], object]:
    return lambda entry: entry["files"][0].update(path=path)


def _set_paths(paths: tuple[str, str]) -> Callable[[dict[str, Any]], object]:
    return lambda entry: [file.update(path=path) for file, path in zip(entry["files"], paths)]


def _set_value(name: str, value: object) -> Callable[[dict[str, Any]], object]:
    return lambda entry: entry["files"][0].update({name: value})


def _set_field(name: str, value: object) -> Callable[[dict[str, Any]], object]:
    return lambda entry: entry.update({name: value})


def _drop_field(name: str) -> Callable[[dict[str, Any]], object]:
    return lambda entry: entry.pop(name)


def hostile_locks() -> dict[str, bytes]:
    """What no reader of a lock may take, by what is wrong with it."""
    fields = json.loads(LOCK_TEXT)["checkpoints"][LOCK_KEY]
    return {
        **{f"path: {name}": _changed(_set_path(path)) for name, path in HOSTILE_PATHS.items()},
        **{f"paths: {name}": _changed(_set_paths(paths)) for name, paths in _PAIRS.items()},
        **{f"file: {name}": _changed(_set_value(*value)) for name, value in _VALUES.items()},
        **{f"entry: {name}": _changed(_set_field(*value)) for name, value in _FIELDS.items()},
        **{f"without {name}": _changed(_drop_field(name)) for name in fields},
        **{
            f"text: {name}": text if isinstance(text, bytes) else text.encode()
            for name, text in _TEXTS.items()
        },
    }
