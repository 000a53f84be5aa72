"""The graphs of a model that sees or hears, with those that the engine leaves out.

`tests/exporter/test_multimodal_stages.py` fails once upstream captures the encoders itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

import torch
from transformers import PreTrainedModel
from transformers.exporters.utils import get_leaf_tensors, is_multimodal, prepare_for_export

# For what it registers with the engine.
import model_export.exporter.packed_attention  # noqa: F401
from model_export.exporter.errors import ExportError

Stages: TypeAlias = "dict[str, tuple[torch.nn.Module, dict[str, Any]]]"

EMBEDDING = "embed_tokens"
# In the order in which they run.
MEDIA_ENCODERS = ("image_encoder", "audio_encoder")
PROJECTORS = ("multi_modal_projector", "connector", "embed_vision", "embed_audio")
_ORDER = (*MEDIA_ENCODERS, *PROJECTORS, EMBEDDING, "language_model", "lm_head", "decode")
# Their plain forward pass with images can't be traced; a test tries each.
_READS_GRIDS = ("qwen2_vl",)
# What a decode step takes of the arguments of `generate`: images and their like are in the cache.
_DECODED = ("input_ids", "attention_mask", "position_ids")


def sees_or_hears(model: torch.nn.Module) -> bool:
    """Whether the engine cuts this model into encoders and a language model."""
    return is_multimodal(model) and not model.config.is_encoder_decoder


def check_plain(model: PreTrainedModel, inputs: Mapping[str, Any]) -> None:
    """Raise ExportError for inputs that a plain export of this model can't be traced with."""
    grids = [name for name in inputs if name.endswith("_grid_thw")]
    if grids and model.config.model_type in _READS_GRIDS:
        raise ExportError(
            "for_generation",
            f"isn't set, and the forward pass of {type(model).__name__} counts with the numbers in "
            f"`{grids[0]}`, which no trace can follow (transformers 5.24.0: "
            "GuardOnDataDependentSymNode)",
            "Set for_generation=True, whose graphs take images, or give text alone in "
            "`sample_inputs`",
        )


@contextmanager
def media_in_forward(model: PreTrainedModel) -> Iterator[None]:
    """While the block generates: encoders run inside of the model's own forward pass.

    transformers 5.24.0: `generate` runs them before the forward pass that the engine captures
    (`_prepare_multimodal_encoder_kwargs_for_generation`), so that it finds neither an encoder nor a
    projector. Models whose forward takes no encoder's outputs are left alone by that step: this
    says so of every model.
    """
    kind = type(model)
    name = "_supports_mm_encoder_outputs"
    own = vars(kind).get(name)
    setattr(kind, name, lambda _: False)
    try:
        yield
    finally:
        if own is None:
            delattr(kind, name)
        else:
            setattr(kind, name, own)


def complete_stages(model: PreTrainedModel, inputs: Mapping[str, Any], stages: Stages) -> Stages:
    """The engine's `stages` of a multimodal model with the token embedding, in running order.

    A caller puts what the encoders make among the embedded tokens, which upstream leaves to it,
    and needs the embedding for that. `inputs` are the kwargs of the `generate` that was captured.
    """
    embedding = model.get_input_embeddings()
    ids = inputs["input_ids"]
    # A placeholder's own vector is replaced; its id may be outside of the vocabulary.
    known = ids.clamp(max=embedding.weight.shape[0] - 1)
    module, kwargs = stages["decode"]
    fed = {key: each for key, each in kwargs.items() if key in _DECODED or key not in inputs}
    stages = {
        name: _traceable(*stage) if name in MEDIA_ENCODERS else stage
        for name, stage in stages.items()
    }
    completed = {**stages, EMBEDDING: (embedding, {"input": known}), "decode": (module, fed)}
    return {name: completed[name] for name in _ORDER if name in completed}


class WrappedEncoder(torch.nn.Module):
    """An encoder in a form that can be traced: `encoder` is the model's own."""

    def __init__(self, encoder: torch.nn.Module) -> None:
        super().__init__()
        self.encoder = encoder
        # The engine sets output flags on it while it traces.
        self.config = encoder.config


class GridEncoder(WrappedEncoder):
    """An encoder of image patches that takes what follows from their grid, and not the grid.

    transformers 5.24.0 computes these before it traces and leaves the grid among the arguments,
    where nothing reads it; and torch.export (2.12.0) hands arguments that a signature doesn't name
    on in an order of its own, so that backends mistake one for the other.
    """

    def forward(
        self, hidden_states: torch.Tensor, position_ids: torch.Tensor, cu_seqlens: torch.Tensor
    ) -> Any:
        """As the encoder's own, without its `grid_thw`."""
        return self.encoder(
            hidden_states, grid_thw=None, position_ids=position_ids, cu_seqlens=cu_seqlens
        )


class TensorOutputs(WrappedEncoder):
    """An encoder of pixels that gives tensors alone.

    Asked for the hidden states of one layer, transformers 5.24.0 gives a tuple with None for all
    others, and ExecuTorch (1.3.1) counts each None as an output.
    """

    def forward(self, pixel_values: torch.Tensor, **flags: Any) -> dict[str, torch.Tensor]:
        """The encoder's outputs under the engine's names for them (`hidden_states.1`)."""
        outputs: dict[str, torch.Tensor] = get_leaf_tensors(self.encoder(pixel_values, **flags))
        return outputs


def _traceable(
    module: torch.nn.Module, kwargs: Mapping[str, Any]
) -> tuple[torch.nn.Module, dict[str, Any]]:
    """The stage of an encoder, wrapped where that helps."""
    _, prepared, flags = prepare_for_export(module, dict(kwargs))
    if kwargs.get("grid_thw") is None:
        if set(prepared) == {"pixel_values"} and flags.get("output_hidden_states"):
            return TensorOutputs(module), dict(kwargs)
        return module, dict(kwargs)
    computed = {name for name, value in prepared.items() if value is not None} - set(kwargs)
    # Others compute more from their grid (the windows of Qwen2.5-VL), and are left as they are.
    if computed != {"position_ids", "cu_seqlens"}:
        return module, dict(kwargs)
    names = ("hidden_states", "position_ids", "cu_seqlens")
    return GridEncoder(module), {name: prepared[name] for name in names} | flags
