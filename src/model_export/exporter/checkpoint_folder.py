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

from model_export.exporter.errors import ExportError, summary
from model_export.exporter.remote_code import names_own_code, own_class
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
    the one that the target names), `weights` the files that hold it, `files` every file. The
    checkpoint's own code runs where `trust_remote_code` is set.
    """

    folder: Path
    config: Mapping[str, Any]
    architecture: str
    overridden: bool
    trust_remote_code: bool
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
    check_inside(folder)
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
    checkpoint = Checkpoint(
        folder,
        config,
        named,
        architecture is not None,
        origin.trust_remote_code,
        weights,
        record_files(folder),
    )
    _check_architecture(checkpoint, "architecture" if architecture else CONFIG_FILE)
    return checkpoint


def check_inside(folder: Path) -> None:
    """Raise ExportError for a link that leads out of a folder of a checkpoint, or nowhere."""
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


def architecture_class(checkpoint: Checkpoint) -> Any:
    """The model class to load, once `open_checkpoint` has found it to be one.

    Where the target trusts it, the checkpoint's own code comes first, as in the engine.
    """
    if checkpoint.trust_remote_code:
        own = own_class(checkpoint.folder, checkpoint.config, checkpoint.architecture)
        if own is not None:
            return own
    return getattr(transformers, checkpoint.architecture, None)


def _check_architecture(checkpoint: Checkpoint, subject: str) -> None:
    name, config = checkpoint.architecture, checkpoint.config
    try:
        found = architecture_class(checkpoint)
    except (ImportError, RuntimeError) as error:
        raise ExportError(
            subject, f"names {name}, which can't be imported ({summary(error)})", "Name another"
        ) from error
    if not (isinstance(found, type) and issubclass(found, PreTrainedModel)):
        near = difflib.get_close_matches(name, dir(transformers), n=1, cutoff=0.8)
        hint = f", for example {near[0]}" if near else ""
        own_code = names_own_code(config) and not checkpoint.trust_remote_code
        raise ExportError(
            subject,
            f"names {name}, which isn't a model class of transformers {transformers.__version__}"
            + (" (its own code, in `auto_map`, isn't run)" if own_code else ""),
            f'Set `architecture="..."` in the target to one that is{hint}'
            + (", or trust_remote_code=True if you trust that code" if own_code else ""),
        )
    wanted = getattr(getattr(found, "config_class", None), "model_type", None)
    parts = [config, *(part for part in config.values() if isinstance(part, dict))]
    types = {part["model_type"] for part in parts if "model_type" in part}
    if "model_type" in config and wanted is not None and wanted not in types:
        raise ExportError(
            subject,
            f"names {name}, a class for `{wanted}` models, but {CONFIG_FILE} is of "
            f"`{config['model_type']}`",
            f'Set `architecture="..."` in the target to a `{config["model_type"]}` class',
        )
