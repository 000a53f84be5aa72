"""How the vectors of images and sound get into a prompt, found by watching the model do it.

Architectures differ in which output of an encoder they take, what of it they leave out and whether
a projector comes after. One eager pass shows all of that by value, and a rule that would not give
what the model made isn't recorded.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.exporters.utils import get_leaf_tensors

from model_export.exporter.components import Component, capture_stages
from model_export.exporter.errors import ExportError
from model_export.exporter.multimodal_stages import (
    MEDIA_ENCODERS,
    PROJECTORS,
    WrappedEncoder,
    media_in_forward,
    sees_or_hears,
)
from model_export.manifest import MediaRecord, MultimodalRecord
from model_export.spec import ExportSpec

_TOKEN_SETTINGS = ("{}_token_id", "{}_token_index")


@dataclass
class _Seen:
    """What a module was last called with and gave."""

    inputs: dict[str, torch.Tensor] = field(default_factory=dict)
    outputs: dict[str, torch.Tensor] = field(default_factory=dict)


def find_merge_rule(
    model: PreTrainedModel,
    inputs: Mapping[str, Any],
    spec: ExportSpec,
    stages: Sequence[Component] | None = None,
) -> MultimodalRecord | None:
    """What a loop over the graphs of a model has to do between them; None for one of text alone.

    `inputs` are the sample inputs, `stages` all that `capture_stages` has found with them, if it
    has run; those of a plain export say nothing of this. An encoder whose vectors get into the
    prompt in a way that no rule describes is left out of the record. Raises ExportError for a
    sample input that the model's own code uses between the graphs.
    """
    if not sees_or_hears(model) or "input_ids" not in inputs or not model.can_generate():
        return None
    if stages is None or not spec.for_generation:
        stages = capture_stages(model, dict(inputs), replace(spec, for_generation=True))
    modules = {stage.name: stage.module for stage in stages}
    if "language_model" not in modules:
        return None  # Components of the target's own file, which nobody puts together.
    media: list[MediaRecord] = []
    encoders = [name for name in MEDIA_ENCODERS if name in modules]
    if encoders:
        seen = _watch(model, inputs, modules)
        rules = [_rule(model, encoder, inputs, seen) for encoder in encoders]
        media = [rule for rule in rules if rule is not None]
        _check_all_taken(model, inputs, media)
    grid = getattr(getattr(model.config, "vision_config", None), "spatial_merge_size", None)
    return MultimodalRecord(
        media=tuple(media),
        grid_merge=grid if isinstance(grid, int) else None,
        position_planes=_planes(stages),
    )


def _check_all_taken(
    model: PreTrainedModel, inputs: Mapping[str, Any], media: Sequence[MediaRecord]
) -> None:
    """Raise ExportError for an input that isn't of the tokens, nor of any encoder.

    The mask of Qwen2-Audio's frames, for one: by it the model cuts what its encoder made.
    """
    taken = {name for rule in media for name in rule.inputs}
    for name, value in inputs.items() if media else ():
        of_tokens = not isinstance(value, torch.Tensor) or value.shape == inputs["input_ids"].shape
        if name not in taken and not of_tokens:
            raise ExportError(
                f"sample_inputs[{name!r}]",
                f"goes with images or sound, and no graph of {type(model).__name__} takes it as it "
                "is: the model's own code computes with it between the graphs",
                "Export the encoder by itself (`inputs_from`, docs/inputs.md)",
            )


def _planes(stages: Sequence[Component]) -> int | None:
    for stage in stages:
        positions = stage.inputs.get("position_ids")
        if stage.name in ("language_model", "decode") and isinstance(positions, torch.Tensor):
            return int(positions.shape[0]) if positions.ndim == 3 else None
    return None


def _watch(
    model: PreTrainedModel, inputs: Mapping[str, Any], modules: Mapping[str, torch.nn.Module]
) -> dict[str, _Seen]:
    """One forward pass of the prompt: the inputs and outputs of each component's module."""
    watched = {
        name: module.encoder if isinstance(module, WrappedEncoder) else module
        for name, module in modules.items()
        if name != "decode"
    }
    with ExitStack() as stack, media_in_forward(model), torch.no_grad():
        seen = {name: stack.enter_context(_watched(module)) for name, module in watched.items()}
        model(**copy.deepcopy(dict(inputs)))
    return seen


@contextmanager
def _watched(module: torch.nn.Module) -> Iterator[_Seen]:
    seen = _Seen()
    names = tuple(inspect.signature(module.forward).parameters)

    def keep(_: object, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        seen.inputs = dict(get_leaf_tensors({**dict(zip(names, args, strict=False)), **kwargs}))
        seen.outputs = dict(get_leaf_tensors(output))

    handle = module.register_forward_hook(keep, with_kwargs=True)
    try:
        yield seen
    finally:
        handle.remove()


def _rule(
    model: PreTrainedModel, encoder: str, inputs: Mapping[str, Any], seen: Mapping[str, _Seen]
) -> MediaRecord | None:
    token = _token(model, encoder.removesuffix("_encoder"))
    if token is None or "inputs_embeds" not in seen["language_model"].inputs:
        return None
    places = inputs["input_ids"] == token
    merged = seen["language_model"].inputs["inputs_embeds"]
    vectors = merged[places]
    renamed = _renamed(seen[encoder].inputs, inputs)
    for projector in (None, *(name for name in PROJECTORS if name in seen)):
        last = seen[projector or encoder].outputs
        names = [name for name, tensor in last.items() if _flat_equal(tensor, vectors)]
        if not names:
            continue
        if projector is None:
            return MediaRecord(encoder, token, renamed, names[0], 0, None)
        taken = _taken(seen[encoder].outputs, seen[projector].inputs)
        if taken is not None:
            return MediaRecord(encoder, token, renamed, *taken, projector)
    return None


def _token(model: PreTrainedModel, modality: str) -> int | None:
    """The id that stands in a prompt for a vector of a modality."""
    for setting in _TOKEN_SETTINGS:
        token = getattr(model.config, setting.format(modality), None)
        if isinstance(token, int):
            return token
    return None


def _renamed(taken: Mapping[str, torch.Tensor], inputs: Mapping[str, Any]) -> dict[str, str]:
    """The arguments of `generate` that the encoder is called with, and what it calls them."""
    return {
        name: own
        for name, given in inputs.items()
        for own, tensor in taken.items()
        if isinstance(given, torch.Tensor) and _equal(tensor, given)
    }


def _taken(
    outputs: Mapping[str, torch.Tensor], inputs: Mapping[str, torch.Tensor]
) -> tuple[str, int] | None:
    """Which output of an encoder a projector is fed, and how many of its first positions aren't."""
    if len(inputs) != 1:
        return None
    (wanted,) = inputs.values()
    for name, tensor in outputs.items():
        if tensor.ndim != 3 or wanted.ndim != 3:
            if _equal(tensor, wanted):
                return name, 0
            continue
        skip = tensor.shape[1] - wanted.shape[1]
        if skip >= 0 and _equal(tensor[:, skip:], wanted):
            return name, skip
    return None


def _equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.shape == other.shape and bool((one == other).all())


def _flat_equal(tensor: torch.Tensor, vectors: torch.Tensor) -> bool:
    width = vectors.shape[-1]
    if tensor.numel() != vectors.numel() or tensor.shape[-1] != width or not tensor.numel():
        return False
    return _equal(tensor.reshape(-1, width), vectors)
