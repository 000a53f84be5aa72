"""Loads a checkpoint through the engine; opening and copying one are next door."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from model_export.exporter.attention import drop_unexportable_attention
from model_export.exporter.checkpoint_folder import (
    CONFIG_FILE,
    Checkpoint,
    architecture_class,
    open_checkpoint,
)
from model_export.exporter.companions import copy_companions
from model_export.exporter.errors import ExportError, summary

__all__ = [
    "Checkpoint",
    "copy_companions",
    "load_config",
    "load_model",
    "load_tokenizer",
    "open_checkpoint",
]

# One of these, and the checkpoint has a tokenizer.
_TOKENIZER_FILES = (
    "sentencepiece.bpe.model",
    "spiece.model",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "vocab.json",
    "vocab.txt",
)


def load_config(checkpoint: Checkpoint) -> tuple[PreTrainedConfig, dict[str, str]]:
    """The model's config, and the attention of its parts that no export has, left out of it.

    Raises ExportError if it can't be read.
    """
    architecture = architecture_class(checkpoint)
    try:
        config: PreTrainedConfig = architecture.config_class.from_pretrained(checkpoint.folder)
    except Exception as error:  # each config class validates with exceptions of its own
        raise ExportError(
            CONFIG_FILE,
            f"is refused by {architecture.config_class.__name__} ({summary(error)})",
            "Correct it",
        ) from error
    return config, drop_unexportable_attention(config)


def load_model(
    checkpoint: Checkpoint, dtype: str, config: PreTrainedConfig | None = None
) -> PreTrainedModel:
    """The model in eval mode with its weights in `dtype` (a torch name such as "float32").

    Weights that have that dtype in the file stay mapped from it, privately: no copy is made, and
    the file is never written. Attention is sdpa, or eager where the config says so or the
    architecture has no sdpa. `config` is what `load_config` found, if it was asked already.

    Raises ExportError if weights lack, have another shape, or are left over, unless the target
    itself names an architecture that takes only a part of the checkpoint.
    """
    import torch

    architecture = architecture_class(checkpoint)
    if config is None:
        config, _ = load_config(checkpoint)
    try:
        model, found = architecture.from_pretrained(
            checkpoint.folder,
            config=config,
            dtype=getattr(torch, dtype),
            use_safetensors=checkpoint.weights[0].endswith(".safetensors"),
            local_files_only=True,
            # Collected and reported below, with both shapes.
            ignore_mismatched_sizes=True,
            output_loading_info=True,
        )
    except Exception as error:  # unpickling and conversions can raise anything
        raise ExportError(
            checkpoint.weights[0],
            f"can't be loaded as {checkpoint.architecture} ({summary(error)})",
            "Fetch or copy the checkpoint again",
        ) from error
    _check_complete(checkpoint, found)
    model.requires_grad_(False)
    loaded: PreTrainedModel = model.eval()
    return loaded


def load_tokenizer(checkpoint: Checkpoint) -> PreTrainedTokenizerBase | None:
    """The checkpoint's tokenizer, None if it has none; raises ExportError if it can't be read."""
    from transformers import AutoTokenizer

    present = [name for name in _TOKENIZER_FILES if (checkpoint.folder / name).exists()]
    if not present:
        return None
    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            checkpoint.folder,
            local_files_only=True,
            # Explicitly not, where it isn't trusted: the engine would ask whoever sits there.
            trust_remote_code=checkpoint.trust_remote_code,
        )
    except Exception as error:  # `tokenizers` raises bare Exception
        raise ExportError(
            present[0],
            f"can't be read as a tokenizer ({summary(error)})",
            "Correct the tokenizer's files, or leave all of them out",
        ) from error
    return tokenizer


def _check_complete(checkpoint: Checkpoint, found: Mapping[str, Any]) -> None:
    """Raise ExportError for weights that the engine would have drawn at random or dropped."""
    file = checkpoint.weights[0] if len(checkpoint.weights) == 1 else "weights"
    name = checkpoint.architecture
    if found["mismatched_keys"]:
        key, there, wanted = min(found["mismatched_keys"])
        raise ExportError(
            file,
            f"has `{key}` of the shape {list(there)}, where {CONFIG_FILE} makes it {list(wanted)}",
            "Take config.json and weights from the same checkpoint",
        )
    if found["missing_keys"]:
        raise ExportError(
            file,
            f"lacks {_some(found['missing_keys'])} of {name}, which would be drawn at random",
            'Set `architecture="..."` in the target to a class whose weights are all there',
        )
    if found["unexpected_keys"] and not checkpoint.overridden:
        raise ExportError(
            file,
            f"has weights that {name} doesn't take: {_some(found['unexpected_keys'])}",
            f'Set `architecture="{name}"` in the target to drop them, or name the class that '
            "takes them",
        )


def _some(keys: set[str]) -> str:
    names = ", ".join(f"`{key}`" for key in sorted(keys)[:3])
    return names if len(keys) <= 3 else f"{names} and {len(keys) - 3} more"
