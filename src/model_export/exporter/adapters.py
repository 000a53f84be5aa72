"""Merges a LoRA adapter into its base model, with peft, before anything is exported.

Each weight becomes W + scale * B @ A, computed in float32 and rounded once to the model's dtype,
one weight at a time; the checkpoint's mapped file is read and never written. The product's last
bits depend on the CPU, so an export with an adapter pins its computation (`hermetic.py`).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from model_export.exporter.checkpoint_folder import check_inside
from model_export.exporter.errors import ExportError, summary
from model_export.exporter.safetensors_header import SafetensorsError, read_header
from model_export.exporter.weights_files import read_object
from model_export.spec import ADAPTER_CONFIG, ADAPTER_WEIGHTS

_FIELD = "adapter"
_TRAIN = "Train it with peft's LoraConfig, or merge it in a script and export what comes of it"
_OTHER_BASE = "Name the model that it was trained on as `model`"

# What a merge minds; tests hold each of them to what peft's own unmerged model computes.
_MERGED = (
    "alpha_pattern",
    "bias",
    "exclude_modules",
    "fan_in_fan_out",
    "layers_pattern",
    "layers_to_transform",
    "lora_alpha",
    "lora_bias",
    "modules_to_save",
    "r",
    "rank_pattern",
    "target_modules",
    "task_type",
    "use_dora",
    "use_rslora",
)
# What only matters to whoever trains, or without a feature that is refused.
_IDLE = (
    "auto_mapping",
    "base_model_name_or_path",
    "corda_config",
    "eva_config",
    "inference_mode",
    "loftq_config",
    "lora_dropout",
    "lora_ga_config",
    "megatron_core",
    "peft_type",
    "peft_version",
    "qalora_group_size",
    "revision",
)
# Initialisations that leave the base model's weights alone. The others (PiSSA, OLoRA, ...) change
# them, and an adapter that still says so fits the changed ones.
_INITIALIZATIONS = (True, False, "gaussian")


def merge_adapter(model: PreTrainedModel, folder: Path) -> PreTrainedModel:
    """`model` with the adapter in `folder` merged into its weights, changed in place.

    Raises ExportError for an adapter that isn't LoRA in safetensors, for a setting that a merge
    can't keep, for one of another model (modules, shapes), and for weights that aren't finite.
    """
    config = _config(folder)
    found = _shapes(folder)
    try:
        import peft
    except ImportError as error:
        raise ExportError(
            _FIELD,
            "needs the package peft, which the resolve doesn't have",
            "Add it to the lock of `resolve`",
        ) from error
    from safetensors.torch import load_file

    ties = _ties(model)
    try:
        with warnings.catch_warnings():
            # That modules are tied: `_check_ties` decides it.
            warnings.simplefilter("ignore")
            wrapped: Any = peft.get_peft_model(model, peft.LoraConfig(**config))
    except Exception as error:  # peft raises ValueError and its like for what a model hasn't
        raise ExportError(_FIELD, f"doesn't fit the model ({summary(error)})", _OTHER_BASE) from (
            error
        )
    expected = {
        name: tuple(tensor.shape)
        for name, tensor in peft.get_peft_model_state_dict(
            wrapped, save_embedding_layers=False
        ).items()
    }
    _check_fit(expected, found)
    _check_ties(wrapped)
    peft.set_peft_model_state_dict(wrapped, load_file(folder / ADAPTER_WEIGHTS))
    wrapped.eval()
    with torch.no_grad():
        for module in wrapped.modules():
            if isinstance(module, peft.tuners.lora.LoraLayer):
                _merge_in_float32(module)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # That all is merged already.
        merged: PreTrainedModel = wrapped.merge_and_unload()
    _restore_ties(merged, ties)
    merged.requires_grad_(False)
    return merged.eval()


def _merge_in_float32(layer: Any) -> None:
    """Merge one layer into a new tensor; peft by itself rounds the product to the layer's dtype."""
    base = layer.get_base_layer()
    dtypes = {name: parameter.dtype for name, parameter in base.named_parameters()}
    base.float()
    try:
        layer.merge(safe_merge=True)
    except ValueError as error:
        raise ExportError(
            ADAPTER_WEIGHTS, f"can't be merged ({summary(error)})", "Take an adapter that works"
        ) from error
    for name, dtype in dtypes.items():
        parameter = base.get_parameter(name)
        parameter.data = parameter.data.to(dtype)


def _config(folder: Path) -> dict[str, Any]:
    """The settings of `adapter_config.json` that a merge minds."""
    check_inside(folder)
    if not (folder / ADAPTER_CONFIG).is_file():
        raise ExportError(ADAPTER_CONFIG, "is missing", "Add what `save_pretrained` of peft wrote")
    document = read_object(folder, ADAPTER_CONFIG)
    kind = document.get("peft_type")
    if kind != "LORA":
        raise ExportError(f"{ADAPTER_CONFIG}: peft_type", f"is {kind!r}, not 'LORA'", _TRAIN)
    start = document.pop("init_lora_weights", True)
    if start not in _INITIALIZATIONS:
        raise ExportError(
            f"{ADAPTER_CONFIG}: init_lora_weights",
            f"is {start!r}, which changes the weights of the base model",
            "Save it with peft's `path_initial_model_for_weight_conversion`",
        )
    for name, value in sorted(document.items()):
        if name not in (*_MERGED, *_IDLE) and value not in (None, False, [], {}):
            raise ExportError(
                f"{ADAPTER_CONFIG}: {name}", f"is {value!r}, which can't be merged here", _TRAIN
            )
    return {name: document[name] for name in _MERGED if document.get(name) is not None}


def _shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """The shapes in the adapter's weights, read from the header alone."""
    path = folder / ADAPTER_WEIGHTS
    if not path.is_file():
        pickled = (folder / "adapter_model.bin").is_file()
        raise ExportError(
            ADAPTER_WEIGHTS,
            "is missing" + (", and adapter_model.bin is a pickle" if pickled else ""),
            "Save the adapter with `safe_serialization=True`",
        )
    try:
        return {name: tuple(entry.shape) for name, entry in read_header(path).items()}
    except SafetensorsError as error:
        raise ExportError(ADAPTER_WEIGHTS, str(error), "Fetch or copy the adapter again") from error


def _check_fit(
    expected: Mapping[str, tuple[int, ...]], found: Mapping[str, tuple[int, ...]]
) -> None:
    """Raise ExportError unless the adapter has exactly the weights that the model takes of it."""
    for name in sorted(expected.keys() & found.keys()):
        if expected[name] != found[name]:
            raise ExportError(
                _FIELD,
                f"has `{name}` of the shape {list(found[name])}, where the model takes "
                f"{list(expected[name])}",
                _OTHER_BASE,
            )
    for names, problem in (
        (expected.keys() - found.keys(), "lacks"),
        (found.keys() - expected.keys(), "has weights that the model doesn't take:"),
    ):
        if names:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            raise ExportError(_FIELD, f"{problem} `{min(names)}`{more}", _OTHER_BASE)


def _check_ties(wrapped: torch.nn.Module) -> None:
    """Raise ExportError where a changed weight is another module's too.

    Unmerged, the other module keeps the base model's weight, so one merged weight for both is
    another model than the one that was trained.
    """
    for names in _ties(wrapped):
        changed = [name for name in names if ".base_layer." in name]
        if changed:
            here, other = changed[0], next(name for name in names if name != changed[0])
            raise ExportError(
                _FIELD,
                f"changes `{_plain(here)}`, which the model ties to `{_plain(other)}`",
                "Put that module into the adapter's `modules_to_save`, not its `target_modules`",
            )


def _plain(name: str) -> str:
    """A weight's name in the model that peft has wrapped."""
    return name.removeprefix("base_model.model.").replace(".base_layer.", ".")


def _ties(model: torch.nn.Module) -> list[list[str]]:
    """The names of the weights that several modules share."""
    shared: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        shared.setdefault(id(parameter), []).append(name)
    return [names for names in shared.values() if len(names) > 1]


def _restore_ties(model: PreTrainedModel, ties: Sequence[Sequence[str]]) -> None:
    """Tie again what the adapter brought equal for all; say of the rest that it isn't tied."""
    for first, *others in ties:
        kept = model.get_parameter(first)
        for name in others:
            parameter = model.get_parameter(name)
            if parameter is kept:
                continue
            if torch.equal(parameter, kept):
                module, _, attribute = name.rpartition(".")
                setattr(model.get_submodule(module), attribute, kept)
            else:
                for config in (model.config, model.config.get_text_config()):
                    config.tie_word_embeddings = False
