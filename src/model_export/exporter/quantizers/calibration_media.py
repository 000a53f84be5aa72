"""Calibration on images and sound: through the checkpoint's processor, as the model takes them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from model_export.exporter.checkpoint_folder import Checkpoint
from model_export.exporter.errors import ExportError, summary
from model_export.exporter.quantizers.calibration_lines import FIELD, CalibrationLine
from model_export.exporter.sample_media import (
    has_processor,
    load_processor,
    names_made,
    process_batch,
    read_media,
)
from model_export.exporter.samples import pad_token
from model_export.spec import ExportSpec

# The keys of a line, and what transformers calls such input of a model.
_MODALITIES = {"images": "image", "audio": "audio"}
_ARGUMENTS = {"image": ("pixel_values",), "audio": ("input_features", "input_values")}


def calibration_processor(
    checkpoint: Checkpoint, model: PreTrainedModel, lines: Sequence[CalibrationLine]
) -> Any | None:
    """What makes tensors of the lines' images and sound; None where there is nothing of both.

    Raises ExportError for a model that doesn't take them, and a checkpoint without a processor.
    """
    modalities = _modalities(model)
    for kind, modality in _MODALITIES.items():
        for line in lines:
            if line.media(kind) and modality not in modalities:
                raise ExportError(
                    FIELD,
                    f"have {kind} in {line.where}, and {type(model).__name__} takes none",
                    f"Name files of {' or '.join(sorted(modalities))}",
                )
    # Of texts alone, for a model that also sees: which of its inputs they leave out.
    sees = not modalities.isdisjoint(_MODALITIES.values())
    named = any(line.images or line.audio for line in lines)
    if named or (sees and has_processor(checkpoint)):
        return load_processor(checkpoint, FIELD, "leave `calibration` out")
    return None


def _modalities(model: PreTrainedModel) -> set[str]:
    """What the model takes, in transformers' words.

    Some classes of images (RegNet, FocalNet) keep the default of 5.24.0, which is text alone; their
    arguments tell.
    """
    said = model.input_modalities
    found = {said} if isinstance(said, str) else set(said)
    arguments = inspect.signature(model.forward).parameters
    for modality, names in _ARGUMENTS.items():
        if not arguments.keys().isdisjoint(names):
            found.add(modality)
    return found


def media_inputs(
    model: PreTrainedModel,
    processor: Any,
    traced: Mapping[str, Any],
    spec: ExportSpec,
    group: Sequence[CalibrationLine],
    texts: Sequence[str] | None,
) -> dict[str, Any]:
    """One batch: what the processor makes of the files of `group`, with the lines' own `texts`.

    Nothing is cut off, because a placeholder may be at the end. Raises ExportError for lines that
    the model, the processor or the traced sizes don't fit.
    """
    _check_kinds(model, processor, traced, group, texts)
    media = read_media(
        processor,
        [file for line in group for file in line.images],
        [file for line in group for file in line.audio],
    )
    length = None if spec.is_dynamic or texts is None else traced["input_ids"].shape[1]
    try:
        made = process_batch(media, texts, spec, pad_token(model), length)
    except Exception as error:  # processors check with exceptions of every type
        raise ExportError(
            FIELD,
            f"have what {type(processor).__name__} refuses ({summary(error)}): {places(group)}",
            "Write the processor's own placeholder once in the text for each file",
        ) from error
    fed = {name: made[name] for name in traced if name in made}
    if not spec.is_dynamic:
        _check_shapes(fed, traced, group)
    return {**without_made(traced, processor), **fed}


def without_made(traced: Mapping[str, Any], processor: Any | None) -> dict[str, Any]:
    """The traced inputs that a processor doesn't make, such as a decoder's first ids."""
    names = frozenset(getattr(processor, "model_input_names", ()))
    return {name: value for name, value in traced.items() if name not in names}


def check_complete(
    inputs: Mapping[str, Any],
    traced: Mapping[str, Any],
    model: PreTrainedModel,
    group: Sequence[CalibrationLine],
) -> None:
    """Raise ExportError for lines that leave out an input of the one graph of a plain export."""
    for name in traced:
        if name not in inputs:
            raise ExportError(
                FIELD,
                f"make no `{name}` for {type(model).__name__}: {places(group)}",
                "Write lines with what `sample_inputs` has",
            )


def check_accepted(
    model: PreTrainedModel, inputs: Mapping[str, Any], group: Sequence[CalibrationLine]
) -> None:
    """Raise ExportError for a batch that the model refuses, before a graph does in other words."""
    try:
        with torch.no_grad():
            model(**inputs)
    except Exception as error:  # models check with exceptions of every type
        raise refused(model, error, places(group)) from error


def refused(model: PreTrainedModel, error: BaseException, where: str) -> ExportError:
    """The error for lines that the model doesn't take."""
    return ExportError(
        FIELD,
        f"make inputs that {type(model).__name__} refuses ({summary(error)}): {where}",
        "Compare the lines with `sample_inputs`, and the processor's config with the model's",
    )


def places(group: Sequence[CalibrationLine]) -> str:
    """Where the lines of a batch are, each once."""
    return "; ".join(dict.fromkeys(line.where for line in group))


def render(
    processor: Any | None, tokenizer: PreTrainedTokenizerBase | None, line: CalibrationLine
) -> str:
    """The text of a line: its own, or its messages in the checkpoint's chat template."""
    if line.messages is None:
        return line.text or ""
    for owner in (processor, tokenizer):
        if owner is not None and getattr(owner, "chat_template", None):
            try:
                return str(owner.apply_chat_template(list(line.messages), tokenize=False))
            except Exception as error:  # a template is a program of its own
                raise ExportError(
                    FIELD,
                    f"have what the chat template refuses ({summary(error)}): {line.where}",
                    "Correct the messages",
                ) from error
    raise ExportError(
        FIELD,
        f"have `messages` in {line.where}, and the checkpoint has no chat template",
        'Write {"text": "..."}, or add a chat_template.jinja to the checkpoint',
    )


def _check_kinds(
    model: PreTrainedModel,
    processor: Any,
    traced: Mapping[str, Any],
    group: Sequence[CalibrationLine],
    texts: Sequence[str] | None,
) -> None:
    name = type(model).__name__
    for line in group:
        for kind in _MODALITIES:
            if line.media(kind) and not names_made(processor, kind) & traced.keys():
                raise ExportError(
                    FIELD,
                    f"have {kind} in {line.where}, and the model is traced without",
                    f"Add them to `sample_inputs`: it has {', '.join(traced)}",
                )
        if texts is not None and not line.has_text:
            raise ExportError(
                FIELD,
                f"have no text in {line.where}, and {name} takes one with every sample",
                'Write {"image": "x.png", "text": "..."} with the processor\'s placeholder in it',
            )
        if texts is None and line.has_text:
            raise ExportError(
                FIELD, f"have text in {line.where}, and {name} is traced without", "Remove it"
            )
        if texts is None and len(line.images) + len(line.audio) != 1:
            raise ExportError(
                FIELD,
                f"have {len(line.images) + len(line.audio)} files in {line.where}, and {name} "
                "takes one a sample",
                "Write one line for each",
            )


def _check_shapes(
    fed: Mapping[str, torch.Tensor], traced: Mapping[str, Any], group: Sequence[CalibrationLine]
) -> None:
    for name, tensor in fed.items():
        if tensor.shape != traced[name].shape:
            raise ExportError(
                FIELD,
                f"make `{name}` {list(tensor.shape)}, where the graph has "
                f"{list(traced[name].shape)}: {places(group)}",
                'Make samples of the size of `sample_inputs`, or set config["dynamic"]',
            )
