"""Damage to an artifact's files that is the same for every format."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from verifier.artifacts import Built


def _remove_the_weights(built: Built) -> str:
    name = _weights(built)
    (built.artifact / name).unlink()
    return f"`{name}` of the manifest is missing"


def _truncate_the_weights(built: Built) -> str:
    name = _weights(built)
    path = built.artifact / name
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(size - 64)
    return f"`{name}` has {size - 64} bytes (expected {size})"


def _flip_a_bit(built: Built) -> str:
    name = _weights(built)
    path = built.artifact / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    return f"`{name}` has the sha256 "


def _add_a_file(built: Built) -> str:
    (built.artifact / "other.bin").write_bytes(b"x")
    return "`other.bin` is in the artifact, but not in its manifest"


def _leak_a_path(built: Built) -> str:
    path = built.artifact / "config.json"
    path.write_text(path.read_text() + "\n/tmp/pants-sandbox-Ab12cD/checkpoint\n")
    built.rehash()
    return "`config.json` holds a path of the machine that built it: pants-sandbox-"


def _damage_the_manifest(built: Built) -> str:
    (built.artifact / "manifest.json").write_text("{")
    return "`manifest.json` can't be read: "


def _weights(built: Built) -> str:
    (component,) = built.manifest.components
    return (*component.weights, component.file)[0]


each_damage = pytest.mark.parametrize(
    "damage",
    [
        _remove_the_weights,
        _truncate_the_weights,
        _flip_a_bit,
        _add_a_file,
        _leak_a_path,
        _damage_the_manifest,
    ],
)
Damage = Callable[[Built], str]
