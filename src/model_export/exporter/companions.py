"""Copies what travels with an artifact: config, tokenizer, chat template, preprocessors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from model_export.exporter.checkpoint_folder import CONFIG_FILE, Checkpoint, architecture_class
from model_export.exporter.weights_files import read_object

GENERATION_FILE = "generation_config.json"
TEMPLATE_FILE = "chat_template.jinja"
TOKENIZER_FILE = "tokenizer_config.json"

# Relative to the checkpoint's folder, as `Path.glob` takes them.
_COMPANIONS = (
    "added_tokens.json",
    "additional_chat_templates/*.jinja",
    "chat_template.json",
    TEMPLATE_FILE,
    GENERATION_FILE,
    "merges.txt",
    "normalizer.json",
    "preprocessor_config.json",
    "processor_config.json",
    "sentencepiece.bpe.model",
    "special_tokens_map.json",
    "spiece.model",
    "tokenizer.json",
    "tokenizer.model",
    "video_preprocessor_config.json",
    "vocab.json",
    "vocab.txt",
    # sentence-transformers: what is done with the hidden states.
    "[0-9]*_*/config.json",
    "config_sentence_transformers.json",
    "modules.json",
    "sentence_bert_config.json",
)
# Where older versions of the engine wrote the folder that a checkpoint was loaded from.
_HOST_PATH_KEYS = ("_name_or_path", "name_or_path", "tokenizer_file", "special_tokens_map_file")


def copy_companions(checkpoint: Checkpoint, artifact: Path) -> None:
    """Copy the files that travel with an artifact into its folder.

    Files are copied byte for byte, except: config.json names the architecture that was exported,
    config.json and tokenizer_config.json lose keys that hold a path of the machine they were
    written on, and a chat template is given both ways, as chat_template.jinja and inside
    tokenizer_config.json, because runtimes read one or the other. A model that generates gets a
    generation_config.json from its config if it has none.
    """
    artifact.mkdir(parents=True, exist_ok=True)
    for pattern in _COMPANIONS:
        for path in sorted(checkpoint.folder.glob(pattern)):
            target = artifact / path.relative_to(checkpoint.folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    config = _without_host_paths(checkpoint.config)
    if checkpoint.overridden:
        config["architectures"] = [checkpoint.architecture]
    _write(checkpoint, artifact, CONFIG_FILE, config)
    _write_template(checkpoint, artifact)
    _write_generation_config(checkpoint, artifact)


def _without_host_paths(document: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key not in _HOST_PATH_KEYS}


def _write(checkpoint: Checkpoint, artifact: Path, name: str, document: Mapping[str, Any]) -> None:
    """Write a JSON object, or copy the checkpoint's file if that holds the same."""
    original = checkpoint.folder / name
    if original.exists() and read_object(checkpoint.folder, name) == document:
        (artifact / name).write_bytes(original.read_bytes())
        return
    text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    (artifact / name).write_text(text, encoding="utf-8")


def _write_template(checkpoint: Checkpoint, artifact: Path) -> None:
    if not (checkpoint.folder / TOKENIZER_FILE).exists():
        return
    settings = _without_host_paths(read_object(checkpoint.folder, TOKENIZER_FILE))
    inlined = settings.get("chat_template")
    file = checkpoint.folder / TEMPLATE_FILE
    if file.exists():
        # As the engine does (transformers 5.24.0): the file wins.
        settings["chat_template"] = file.read_text(encoding="utf-8")
    elif isinstance(inlined, str):
        (artifact / TEMPLATE_FILE).write_text(inlined, encoding="utf-8")
    _write(checkpoint, artifact, TOKENIZER_FILE, settings)


def _write_generation_config(checkpoint: Checkpoint, artifact: Path) -> None:
    from transformers import GenerationConfig

    architecture = architecture_class(checkpoint)
    if (artifact / GENERATION_FILE).exists() or not architecture.can_generate():
        return
    config = architecture.config_class.from_pretrained(checkpoint.folder)
    GenerationConfig.from_model_config(config).save_pretrained(artifact)
