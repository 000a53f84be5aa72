"""The contract from an artifact to whatever reads it: `manifest.json`, schema version 1.

`docs/manifest.md` describes the schema for readers in other languages. Standard library and
Python 3.9 only, because Pants, exporter, verifier and runtime all import this module.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Dict, Mapping, Optional, Tuple, Union

MANIFEST_FILE = "manifest.json"
SCHEMA_VERSION = 1

# A size; the name of a dynamic dimension, equal names being equal sizes; or "?" where unnamed.
Dimension = Union[int, str]

# What few exports have. `calibration` is null where nothing was calibrated.
_LEFT_OUT_IF_EMPTY = ("recipe", "adapter", "multimodal", "inputs_file", "replaced_attention")
_CHUNK_BYTES = 1 << 20


class ManifestError(ValueError):
    """A manifest that can't be read: not JSON, another schema version, or a missing field."""


@dataclass(frozen=True)
class FileRecord:
    """A file of a checkpoint or artifact: relative path with '/', size in bytes, sha256 in hex."""

    path: str
    size: int
    sha256: str

    @classmethod
    def of(cls, path: str, folder: Path = Path()) -> FileRecord:
        """The file at `path` in `folder`."""
        file = folder / path
        return cls(path, file.stat().st_size, sha256_of(file))


@dataclass(frozen=True)
class TensorRecord:
    """An input or output of a graph; `dtype` as torch spells it, without `torch.`."""

    name: str
    dtype: str
    shape: Tuple[Dimension, ...]


@dataclass(frozen=True)
class ComponentRecord:
    """One graph: its file, the weights files it reads beside that, and its signature in order.

    `bounds` has the smallest and largest size of each named dimension that the graph limits.
    """

    name: str
    file: str
    weights: Tuple[str, ...]
    inputs: Tuple[TensorRecord, ...]
    outputs: Tuple[TensorRecord, ...]
    bounds: Mapping[str, Tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class CheckpointRecord:
    """The checkpoint that was exported: where it came from, and every file of it."""

    source: str
    identity: str
    files: Tuple[FileRecord, ...]


@dataclass(frozen=True)
class VerificationRecord:
    """What verification said before the artifact was handed out.

    `status` is "passed", "structure" (the files are as they have to be, and nothing was computed:
    `note` says why), "skipped" (the target has `skip_verify=True`) or "pending" (the export process
    alone has run). `tolerance` are the bounds that it passed with. Measured differences vary with
    the CPU and aren't part of an artifact: they are in the test's report.
    """

    status: str = "pending"
    tolerance: Mapping[str, float] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True)
class CalibrationRecord:
    """What a quantizer's ranges were observed on.

    `source` is "files" or "sample_inputs" (the export's own, a single batch); `files` are those
    that lines were drawn from, and the images and sounds that were drawn, `batches` the number of
    calls that each component was observed in.
    """

    source: str
    files: Tuple[FileRecord, ...]
    batches: Mapping[str, int]


@dataclass(frozen=True)
class MediaRecord:
    """How what an encoder makes of images or sound becomes a part of a prompt.

    `token` stands in the prompt for each vector that the encoder makes, in order. `inputs` maps an
    argument of `generate` to the encoder's input. Of its `output` the first `skip` positions
    are left out; the rest goes through `projector`, if there is one.
    """

    encoder: str
    token: int
    inputs: Mapping[str, str]
    output: str
    skip: int
    projector: Optional[str]


@dataclass(frozen=True)
class MultimodalRecord:
    """What a generation loop has to do between the graphs of a model that sees or hears.

    `grid_merge` is how many patches, down and across, become one vector, for encoders that take a
    grid of patches. `position_planes` is the number of positions that each token has (4 with
    M-RoPE: of text, time, height and width), None for one.
    """

    media: Tuple[MediaRecord, ...]
    grid_merge: Optional[int] = None
    position_planes: Optional[int] = None


@dataclass(frozen=True)
class RecipeRecord:
    """The recipe of the checkpoint that a target with `recipe=True` took its settings from.

    `settings` is what the recipe said, `overridden` what the target itself said instead, or on top
    of it; the manifest's `spec` is what came of both. `file` is where the recipe was.
    """

    file: str
    settings: Mapping[str, Any]
    overridden: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        """One spelling for equal records."""
        return json.dumps(asdict(self), sort_keys=True, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> RecipeRecord:
        """Read what `to_json` wrote."""
        return cls(**json.loads(text))


@dataclass(frozen=True)
class Manifest:
    """All of `manifest.json`: what went in and what came out.

    `spec` is the export's spec with every default written out, `lock` the name of the resolve and
    the sha256 of its lock file, `engine` package name -> version, `files` every file of the
    artifact but the manifest itself. `recipe` is there where a recipe had a part in the spec,
    `calibration` where a quantizer observed the model, `adapter` where one was merged into it,
    `multimodal` where a model sees or hears, `inputs_file` where a file of the target's own made
    the sample inputs or the components, `replaced_attention` (part of the config -> attention)
    where the config named one that no graph has.
    """

    export_format: str
    checkpoint: CheckpointRecord
    spec: Mapping[str, Any]
    lock: Mapping[str, str]
    engine: Mapping[str, str]
    components: Tuple[ComponentRecord, ...]
    files: Tuple[FileRecord, ...]
    verification: VerificationRecord = field(default_factory=VerificationRecord)
    recipe: Optional[RecipeRecord] = None
    calibration: Optional[CalibrationRecord] = None
    adapter: Optional[CheckpointRecord] = None
    multimodal: Optional[MultimodalRecord] = None
    inputs_file: Optional[FileRecord] = None
    replaced_attention: Mapping[str, str] = field(default_factory=dict)
    schema_version: int = SCHEMA_VERSION

    def spec_of(self, component: str) -> Mapping[str, Any]:
        """The spec as it was for one component: `config` with that component's own keys."""
        own = self.spec.get("component_config", {}).get(component, {})
        return {**self.spec, "config": {**self.spec["config"], **own}}

    def to_json(self) -> str:
        """Indented JSON with sorted keys and a final newline; equal manifests give equal bytes."""
        document = asdict(self)
        if not self.verification.note:
            del document["verification"]["note"]
        document = {
            name: value
            for name, value in document.items()
            if name not in _LEFT_OUT_IF_EMPTY or value
        }
        return json.dumps(document, indent=2, sort_keys=True, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        """Read what `to_json` wrote.

        Raises ManifestError if it isn't JSON, has another schema version or lacks a field.
        """
        try:
            document = json.loads(text)
            version = document["schema_version"]
            if version != SCHEMA_VERSION:
                raise ManifestError(
                    f"{MANIFEST_FILE} has schema version {version!r}, and this reads "
                    f"{SCHEMA_VERSION}: use the model-export that wrote it, or export again."
                )
            return cls(
                export_format=document["export_format"],
                checkpoint=_checkpoint(document["checkpoint"]),
                spec=document["spec"],
                lock=document["lock"],
                engine=document["engine"],
                components=tuple(_component(item) for item in document["components"]),
                files=_files(document["files"]),
                verification=VerificationRecord(**document.get("verification", {})),
                recipe=RecipeRecord(**document["recipe"]) if "recipe" in document else None,
                calibration=_calibration(document.get("calibration")),
                adapter=_checkpoint(document["adapter"]) if "adapter" in document else None,
                multimodal=_multimodal(document.get("multimodal")),
                inputs_file=(
                    FileRecord(**document["inputs_file"]) if "inputs_file" in document else None
                ),
                replaced_attention=document.get("replaced_attention", {}),
            )
        except (KeyError, TypeError, json.JSONDecodeError) as error:
            raise ManifestError(f"{MANIFEST_FILE} is damaged ({error!r}): export again.") from error


def _files(items: Any) -> Tuple[FileRecord, ...]:
    return tuple(FileRecord(**item) for item in items)


def _checkpoint(item: Any) -> CheckpointRecord:
    return CheckpointRecord(item["source"], item["identity"], _files(item["files"]))


def _calibration(item: Optional[Dict[str, Any]]) -> Optional[CalibrationRecord]:
    if item is None:
        return None
    return CalibrationRecord(item["source"], _files(item["files"]), item["batches"])


def _multimodal(item: Optional[Dict[str, Any]]) -> Optional[MultimodalRecord]:
    if item is None:
        return None
    return MultimodalRecord(
        tuple(MediaRecord(**media) for media in item["media"]),
        item["grid_merge"],
        item["position_planes"],
    )


def _tensors(items: Any) -> Tuple[TensorRecord, ...]:
    return tuple(TensorRecord(item["name"], item["dtype"], tuple(item["shape"])) for item in items)


def _component(item: Dict[str, Any]) -> ComponentRecord:
    return ComponentRecord(
        item["name"],
        item["file"],
        tuple(item["weights"]),
        _tensors(item["inputs"]),
        _tensors(item["outputs"]),
        {name: (low, high) for name, (low, high) in item["bounds"].items()},
    )


def sha256_of(path: Path) -> str:
    """The sha256 of a file in hex, read in chunks of 1 MiB."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def record_files(directory: Path) -> Tuple[FileRecord, ...]:
    """Every file below `directory` in the order of its path, the manifest itself left out."""
    paths = sorted(
        path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file()
    )
    return tuple(FileRecord.of(path, directory) for path in paths if path != MANIFEST_FILE)
