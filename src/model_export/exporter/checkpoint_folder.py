"""A checkpoint folder, and the checks that it passes before torch loads anything of it."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import transformers
from transformers import PreTrainedModel

from model_export.exporter.errors import ExportError
from model_export.exporter.weights_files import find_weights, read_object
from model_export.manifest import FileRecord, record_files
from model_export.spec import CheckpointOrigin

CONFIG_FILE = "config.json"

# Files other than config.json that have to be JSON objects where they are there.
_OBJECTS = (
    "generation_config.json",
    "preprocessor_config.json",
    "processor_config.json",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
)


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint folder that was checked.

    `config` is config.json as it is, `architecture` the class to load (the config's first one, or
    the one that the target names), `weights` the files that hold it, `files` every file.
    """

    folder: Path
    config: Mapping[str, Any]
    architecture: str
    overridden: bool
    weights: tuple[str, ...]
    files: tuple[FileRecord, ...]


def open_checkpoint(folder: Path, origin: CheckpointOrigin, architecture: str | None) -> Checkpoint:
    """Check a checkpoint folder without loading it.

    `architecture` takes the place of the config's own. Raises ExportError, naming file and remedy,
    for a file that leads out of the folder, a config.json that is missing or no JSON object, an
    architecture that is missing, unknown to transformers or of another model type, weights that
    are missing, damaged, quantized, or pickled where `origin` doesn't allow that, and tokenizer or
    generation files that are no JSON objects.
    """
    _check_inside(folder)
    if not (folder / CONFIG_FILE).is_file():
        raise ExportError(CONFIG_FILE, "is missing", "Add the config.json of the model")
    config = read_object(folder, CONFIG_FILE)
    weights = find_weights(folder, origin.allow_pickle)
    for name in _OBJECTS:
        if (folder / name).exists():
            read_object(folder, name)
    if "quantization_config" in config:
        raise ExportError(
            f"{CONFIG_FILE}: quantization_config",
            "says that the weights are quantized, which exports don't take",
            "Use the checkpoint in floating point",
        )
    named = architecture if architecture is not None else _own_architecture(config)
    _check_architecture(named, config, "architecture" if architecture else CONFIG_FILE)
    return Checkpoint(
        folder, config, named, architecture is not None, weights, record_files(folder)
    )


def _check_inside(folder: Path) -> None:
    root = folder.resolve()
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() and not path.resolve().is_relative_to(root):
            raise ExportError(
                path.relative_to(folder).as_posix(),
                f"is a link that leads out of the checkpoint, to {os.readlink(path)}",
                "Put the file itself there",
            )
        if path.is_symlink() and not path.exists():
            raise ExportError(
                path.relative_to(folder).as_posix(),
                "is a link to a file that isn't there",
                "Put the file itself there",
            )


def _own_architecture(config: Mapping[str, Any]) -> str:
    named = config.get("architectures")
    if isinstance(named, list) and named and isinstance(named[0], str):
        return named[0]
    raise ExportError(
        CONFIG_FILE,
        "doesn't say which class its weights belong to: `architectures` is missing or empty",
        'Set `architecture="..."` in the target, for example to "BertModel"',
    )


def architecture_class(name: str) -> Any:
    """The model class of that name, once `open_checkpoint` has found it to be one."""
    return getattr(transformers, name)


def _check_architecture(name: str, config: Mapping[str, Any], subject: str) -> None:
    try:
        found = getattr(transformers, name, None)
    except (ImportError, RuntimeError) as error:
        raise ExportError(
            subject, f"names {name}, which can't be imported ({summary(error)})", "Name another"
        ) from error
    if not (isinstance(found, type) and issubclass(found, PreTrainedModel)):
        near = difflib.get_close_matches(name, dir(transformers), n=1, cutoff=0.8)
        hint = f", for example {near[0]}" if near else ""
        own_code = "auto_map" in config
        raise ExportError(
            subject,
            f"names {name}, which isn't a model class of transformers {transformers.__version__}"
            + (" (its own code, in `auto_map`, isn't run)" if own_code else ""),
            f'Set `architecture="..."` in the target to one that is{hint}',
        )
    wanted = getattr(architecture_class(name).config_class, "model_type", None)
    parts = [config, *(part for part in config.values() if isinstance(part, dict))]
    types = {part["model_type"] for part in parts if "model_type" in part}
    if "model_type" in config and wanted is not None and wanted not in types:
        raise ExportError(
            subject,
            f"names {name}, a class for `{wanted}` models, but {CONFIG_FILE} is of "
            f"`{config['model_type']}`",
            f'Set `architecture="..."` in the target to a `{config["model_type"]}` class',
        )


def summary(error: BaseException) -> str:
    """An error's type and the first line of its message that says anything, without full stop."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0].rstrip('.')}" if lines else type(error).__name__
