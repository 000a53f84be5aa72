"""An artifact's folder as the runtime reads it: its manifest and the checkpoint's own settings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model_export.manifest import MANIFEST_FILE, ComponentRecord, Manifest, ManifestError
from model_export.runtime.errors import ArtifactError, InputError


@dataclass(frozen=True)
class Artifact:
    """A folder with its manifest, `config.json` and `generation_config.json` ({} where absent)."""

    folder: Path
    manifest: Manifest
    config: Mapping[str, Any]
    generation_config: Mapping[str, Any]

    @property
    def generates(self) -> bool:
        """Whether it was exported for generation."""
        return bool(self.manifest.spec["for_generation"])

    @property
    def is_encoder_decoder(self) -> bool:
        """Whether a prompt goes through an encoder, and the decoder starts from a token."""
        return bool(self.config.get("is_encoder_decoder", False))

    def component(self, name: str | None = None) -> ComponentRecord:
        """The component of that name, or the only one. Raises InputError."""
        names = [record.name for record in self.manifest.components]
        if name is None and len(names) > 1:
            raise InputError(f"{self.folder} has {', '.join(names)}: name one of them.")
        for record in self.manifest.components:
            if name in (None, record.name):
                return record
        raise InputError(f"{self.folder} has no component {name!r}: it has {', '.join(names)}.")

    def model_setting(self, name: str) -> Any:
        """A key of `config.json`, or None.

        A model of several modalities keeps those of its language model in `text_config`.
        """
        value = self.config.get(name)
        return (self.config.get("text_config") or {}).get(name) if value is None else value

    def token_ids(self, name: str) -> tuple[int, ...]:
        """A setting of generation that is a token id or a list of them; empty if it isn't set.

        As in transformers, `config.json` counts only where there is no `generation_config.json`.
        """
        own = self.generation_config
        value = own.get(name) if own else self.model_setting(name)
        if value is None:
            return ()
        return tuple(value) if isinstance(value, list) else (int(value),)


def read_artifact(path: str | Path) -> Artifact:
    """The artifact in the folder `path`. Raises ArtifactError if there is none."""
    folder = Path(path)
    if not (folder / MANIFEST_FILE).is_file():
        raise ArtifactError(
            f"{folder} is no artifact, it has no {MANIFEST_FILE}: pass the folder that "
            "`./pants package` wrote for an export_model target."
        )
    try:
        manifest = Manifest.from_json((folder / MANIFEST_FILE).read_text(encoding="utf-8"))
    except ManifestError as error:
        raise ArtifactError(f"{folder}: {error}") from error
    for record in manifest.components:
        for name in (record.file, *record.weights):
            if not (folder / name).is_file():
                raise ArtifactError(
                    f"{folder} lacks {name}, which its component {record.name} needs: "
                    "copy the whole folder."
                )
    return Artifact(
        folder,
        manifest,
        read_settings(folder / "config.json"),
        read_settings(folder / "generation_config.json"),
    )


def read_settings(path: Path) -> dict[str, Any]:
    """A JSON object in a file, {} if there is none. Raises ArtifactError if it's damaged."""
    if not path.is_file():
        return {}
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ArtifactError(f"{path} is damaged ({error}): export again.") from error
    if not isinstance(settings, dict):
        raise ArtifactError(f"{path} holds no JSON object: export again.")
    return settings
