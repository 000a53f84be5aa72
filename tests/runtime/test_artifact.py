"""Folders that are no artifact, and the settings of those that are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from model_export.manifest import MANIFEST_FILE, CheckpointRecord, ComponentRecord, Manifest
from model_export.runtime import ArtifactError, InputError, load
from model_export.runtime.artifact import read_artifact


def _write(folder: Path, *names: str, settings: dict[str, object] | None = None) -> Path:
    """An artifact with the graphs of these names, all of them empty files."""
    manifest = Manifest(
        "onnx",
        CheckpointRecord("local", "x", ()),
        {"for_generation": True, "generation_config": {}},
        {},
        {},
        tuple(ComponentRecord(name, f"{name}.onnx", (f"{name}.data",), (), ()) for name in names),
        (),
    )
    (folder / MANIFEST_FILE).write_text(manifest.to_json())
    (folder / "config.json").write_text(json.dumps(settings or {}))
    for name in names:
        (folder / f"{name}.onnx").touch()
        (folder / f"{name}.data").touch()
    return folder


def test_a_folder_without_manifest(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="is no artifact.*`./pants package`"):
        load(tmp_path)


def test_a_manifest_of_another_version(tmp_path: Path) -> None:
    _write(tmp_path, "model")
    path = tmp_path / MANIFEST_FILE
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema_version": 99}))
    with pytest.raises(ArtifactError, match="schema version 99"):
        load(tmp_path)


@pytest.mark.parametrize("lost", ["model.onnx", "model.data"])
def test_a_lost_file(tmp_path: Path, lost: str) -> None:
    (_write(tmp_path, "model") / lost).unlink()
    with pytest.raises(ArtifactError, match=f"lacks {lost}.*copy the whole folder"):
        load(tmp_path)


def test_damaged_settings(tmp_path: Path) -> None:
    (_write(tmp_path, "model") / "generation_config.json").write_text("{")
    with pytest.raises(ArtifactError, match=r"generation_config\.json is damaged"):
        load(tmp_path)


def test_a_component_has_to_be_named_among_several(tmp_path: Path) -> None:
    artifact = read_artifact(_write(tmp_path, "prefill", "decode"))
    assert artifact.component("decode").file == "decode.onnx"
    with pytest.raises(InputError, match="prefill, decode: name one"):
        artifact.component()
    with pytest.raises(InputError, match="no component 'model': it has prefill, decode"):
        artifact.component("model")


def test_settings_of_generation(tmp_path: Path) -> None:
    """`config.json` counts where there are none; a multimodal model's are in `text_config`."""
    settings = {"eos_token_id": 1, "bos_token_id": 0, "text_config": {"vocab_size": 99}}
    artifact = read_artifact(_write(tmp_path, "model", settings=settings))
    assert artifact.token_ids("eos_token_id") == (1,)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [3, 4], "pad_token_id": 0}')
    artifact = read_artifact(tmp_path)
    assert artifact.token_ids("eos_token_id") == (3, 4)
    assert artifact.token_ids("pad_token_id") == (0,)
    assert artifact.token_ids("bos_token_id") == ()
    assert artifact.token_ids("suppress_tokens") == ()
    assert artifact.model_setting("vocab_size") == 99
