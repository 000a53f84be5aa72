"""Which graphs an export consists of, and the inputs each is traced with."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from transformers import GenerationConfig, PreTrainedModel
from transformers.exporters.utils import decompose_for_generation, get_leaf_tensors

from model_export.exporter.custom_inputs import custom_inputs, has_custom_components
from model_export.exporter.errors import ExportError
from model_export.exporter.mapped_weights import released_weights
from model_export.exporter.multimodal_stages import (
    check_plain,
    complete_stages,
    media_in_forward,
    sees_or_hears,
)
from model_export.exporter.recurrent_models import check_sizes
from model_export.exporter.sliding_window_caches import full_length_windows
from model_export.spec import ExportSpec

# Integer inputs of a decode step that hold what `generate` chose while it was captured.
_GENERATED_IDS = ("input_ids", "decoder_input_ids")


@dataclass(frozen=True)
class Component:
    """One graph to export: `module(**inputs)` is the call that is traced."""

    name: str
    module: torch.nn.Module
    inputs: dict[str, Any]


def build_components(
    model: PreTrainedModel, inputs: dict[str, Any], spec: ExportSpec
) -> tuple[Component, ...]:
    """The components that `spec` asks for, in the order in which they run, ready to be traced.

    A plain export has one, `model`, traced on `inputs` themselves. For generation the engine runs
    `model.generate(**inputs)` once and keeps what each stage was called with.

    Raises ExportError if the model can't generate or doesn't have a component that `spec` names.
    """
    return blanked(capture_components(model, inputs, spec))


def capture_components(
    model: PreTrainedModel, inputs: dict[str, Any], spec: ExportSpec
) -> tuple[Component, ...]:
    """As `build_components`, with the inputs as they were computed."""
    return choose_components(capture_stages(model, inputs, spec), model, spec)


def choose_components(
    stages: tuple[Component, ...], model: PreTrainedModel, spec: ExportSpec
) -> tuple[Component, ...]:
    """Those of all `stages` that `spec` asks for.

    Raises ExportError for a component that `spec` names and that isn't among them.
    """
    if not spec.for_generation and not has_custom_components(spec):
        _check_unnamed(spec)
        return stages
    chosen = _choose(tuple(stage.name for stage in stages), model, spec)
    return tuple(stage for stage in stages if stage.name in chosen)


def blanked(components: Sequence[Component]) -> tuple[Component, ...]:
    """The components as they are traced: what was computed of their inputs is overwritten by 0."""
    return tuple(
        Component(part.name, part.module, _independent_of_computation(part.name, part.inputs))
        for part in components
    )


def capture_stages(
    model: PreTrainedModel, inputs: dict[str, Any], spec: ExportSpec
) -> tuple[Component, ...]:
    """As `capture_components`, whichever of them `spec` asks for."""
    if has_custom_components(spec):
        return _custom_stages(model, inputs, spec)
    if isinstance(model, PreTrainedModel):
        check_sizes(model, spec)
    if not spec.for_generation:
        check_plain(model, inputs)
        return (Component("model", model, dict(inputs)),)
    if not model.can_generate():
        raise ExportError(
            "for_generation",
            f"is set, but {type(model).__name__} can't generate",
            "Remove it, or name a generating class in `architecture`",
        )
    if is_recurrent(model) and spec.multi_token_decode:
        raise ExportError(
            "multi_token_decode",
            f"is True, but {type(model).__name__} goes wrong on several tokens after others "
            "(transformers 5.24.0, recurrent states)",
            "Remove it: the decode graph then takes a prompt token by token",
        )
    if spec.has_static_cache and has_dynamic_encoder(model, spec):
        raise ExportError(
            "generation_config['cache_implementation']",
            "is 'static', and the cross-attention's cache would keep the length of the sample "
            "inputs (transformers 5.24.0)",
            "Remove it: a growing cache takes inputs of any length",
        )
    with (
        full_length_windows(),
        released_weights(model),
        media_in_forward(model),
        captured_encoder(model) as encoder,
    ):
        stages = decompose_for_generation(
            model,
            inputs,
            generation_config=capture_generation_config(model, spec),
            # Of an encoder-decoder the engine then keeps the second decode step (5.24.0): the same
            # single token, after two. After one, the trace would freeze the cache's length at 1.
            multi_token_decode=spec.multi_token_decode or model.config.is_encoder_decoder,
        )
    stages = {**encoder, **stages}
    if sees_or_hears(model):
        stages = complete_stages(model, inputs, stages)
    return _as_components(stages)


def _custom_stages(
    model: PreTrainedModel, inputs: dict[str, Any], spec: ExportSpec
) -> tuple[Component, ...]:
    """The components of the target's own file, whose `generate` has the spec's settings."""
    custom = custom_inputs(spec)
    assert custom is not None
    with full_length_windows(), released_weights(model), ExitStack() as settings:
        if spec.for_generation:
            config = capture_generation_config(model, spec)
            settings.enter_context(generating_with(model, config))
        parts = custom.components(model, inputs)
    return _as_components(parts)


@contextmanager
def generating_with(model: PreTrainedModel, config: GenerationConfig) -> Iterator[None]:
    """In the block, the model's own config, which fills all that a call leaves unset, is this."""
    own = model.generation_config
    model.generation_config = config
    try:
        yield
    finally:
        model.generation_config = own


def _as_components(
    stages: Mapping[str, tuple[torch.nn.Module, Mapping[str, Any]]],
) -> tuple[Component, ...]:
    # An argument of None is its default, and a graph has no use for it (Mamba's mask).
    return tuple(
        Component(name, module, {key: value for key, value in kwargs.items() if value is not None})
        for name, (module, kwargs) in stages.items()
    )


@contextmanager
def captured_encoder(
    model: PreTrainedModel,
) -> Iterator[dict[str, tuple[torch.nn.Module, dict[str, Any]]]]:
    """While the block generates: `{"encoder": (module, kwargs)}` of an encoder-decoder's encoder.

    transformers 5.24.0: `generate` runs the encoder before the forward pass that the engine
    captures, so that its stages take `encoder_outputs` and none of them makes it. Empty for other
    models.
    """
    found: dict[str, tuple[torch.nn.Module, dict[str, Any]]] = {}
    if not model.config.is_encoder_decoder:
        yield found
        return
    encoder = model.get_encoder()

    def keep(module: torch.nn.Module, _: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        found.setdefault("encoder", (module, copy.deepcopy(kwargs)))

    handle = encoder.register_forward_pre_hook(keep, with_kwargs=True)
    try:
        yield found
    finally:
        handle.remove()


def capture_generation_config(model: PreTrainedModel, spec: ExportSpec) -> GenerationConfig:
    """The model's generation config with the target's own settings, made greedy.

    Sampling while the engine captures a `generate` would only make the captured ids random.
    Raises ExportError for a key that GenerationConfig doesn't have.
    """
    config = copy.deepcopy(model.generation_config)
    config.update(do_sample=False, num_beams=1, temperature=None, top_k=None, top_p=None)
    unused = config.update(**spec.generation_config)
    if unused:
        name = sorted(unused)[0]
        raise ExportError(
            f"generation_config[{name!r}]",
            "is not a setting of this model's GenerationConfig",
            "Remove it",
        )
    return config


def has_dynamic_encoder(model: torch.nn.Module, spec: ExportSpec) -> bool:
    """Whether the model is an encoder-decoder whose encoder is to take any number of tokens."""
    return bool(
        isinstance(model, PreTrainedModel)
        and model.config.is_encoder_decoder
        and model.main_input_name == "input_ids"
        and spec.is_dynamic
    )


def is_recurrent(model: PreTrainedModel) -> bool:
    """Whether the model carries a state that isn't a cache of positions (Mamba, RWKV)."""
    return bool(getattr(model, "_is_stateful", False))


def _check_unnamed(spec: ExportSpec) -> None:
    """Raise ExportError for names of components in a plain export, which has one.

    Without `inputs_from` the plugin refuses them; what a file of a target returns is known here.
    """
    for field in ("components", "component_config"):
        if getattr(spec, field):
            raise ExportError(
                field,
                f"only has a meaning with for_generation=True, or where {spec.inputs_from} has a "
                "function `components`",
                "Remove it, or add one of them",
            )


def _choose(
    available: tuple[str, ...], model: PreTrainedModel, spec: ExportSpec
) -> tuple[str, ...]:
    if spec.components is not None:
        source = type(model).__name__
        if has_custom_components(spec):
            source = f"the function `components` of {spec.inputs_from}"
        for name in spec.components:
            if name not in available:
                raise ExportError(
                    "components",
                    f"names {name!r}, which {source} doesn't have",
                    f"Choose from {', '.join(available)}",
                )
        return spec.components
    if has_custom_components(spec):
        return available
    if is_recurrent(model):
        # Its prefill has the prompt's length frozen (transformers 5.24.0), and a decode step on
        # states of zero is where a prompt starts.
        return ("decode",)
    # A decoder's multi-token step on an empty cache is its prefill: a second graph would only
    # double the time and the bytes. An encoder runs in the prefill alone.
    decoder_only = set(available) == {"prefill", "decode"} and not model.config.is_encoder_decoder
    if spec.multi_token_decode and decoder_only:
        return ("decode",)
    return available


def _independent_of_computation(name: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Blank captured values that were computed: they end up in a `.pt2`.

    The floats of a cache differ in their last bits between CPUs and thread counts, and with them
    would the artifact. Tracing needs shapes and dtypes only. Masks, positions and counters are
    integers or booleans that follow from the sample inputs, and stay.
    """
    if name in ("model", "encoder", "prefill"):
        return dict(inputs)
    for leaf, tensor in get_leaf_tensors(dict(inputs)).items():
        if tensor.is_floating_point() or leaf in _GENERATED_IDS:
            tensor.zero_()
    return dict(inputs)
