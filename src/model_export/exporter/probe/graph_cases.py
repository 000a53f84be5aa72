"""Calls of single components, run eagerly at the traced shape and at shapes never traced."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.exporters.utils import get_leaf_tensors

from model_export.exporter.components import Component, capture_components
from model_export.exporter.custom_inputs import has_custom_components
from model_export.exporter.output_flags import split_flags
from model_export.exporter.probe.bounds import cases_at_bounds, dims_blamed
from model_export.exporter.probe.media_prompts import MediaPrompts
from model_export.exporter.probe.tensors import ProbeTensors
from model_export.exporter.probe.variants import UNTRACED, resized
from model_export.exporter.samples import PADDING_NAMES
from model_export.manifest import MultimodalRecord
from model_export.probe import GraphCase
from model_export.spec import ExportSpec


def record_graph_cases(
    model: PreTrainedModel,
    inputs: Mapping[str, Any],
    spec: ExportSpec,
    tensors: ProbeTensors,
    multimodal: MultimodalRecord | None = None,
    components: Sequence[Component] | None = None,
) -> Iterator[GraphCase]:
    """Every component of `spec` at the shape of `inputs` (the sample inputs) and at two others.

    And at its bounds, where the spec has any. `components` are what `capture_components` has found
    with `inputs`, if it has run.
    """
    media = None if multimodal is None else MediaPrompts(model, inputs, spec, multimodal)
    # A module from a target's own file may keep something of a call (a cache, as a buffer), and the
    # one that will be traced isn't called.
    if components is None or has_custom_components(spec):
        components = capture_components(model, dict(inputs), spec)
    for component in components:
        yield _case(component, "traced", True, tensors)
    for group in _alike(spec, [component.name for component in components]):
        yield from _untraced(model, inputs, spec, group, tensors, media)
    for component in components if spec.dims else ():
        for name, bounded in cases_at_bounds(model, inputs, spec, component):
            with dims_blamed(name):
                case = _case(bounded, name, False, tensors)
            yield case


def _alike(spec: ExportSpec, names: Sequence[str]) -> list[tuple[str, ...]]:
    """The components in groups of one config, whose sizes may change in the same way."""
    groups: list[tuple[str, ...]] = []
    for name in names:
        config = spec.for_component(name).config
        for index, group in enumerate(groups):
            if spec.for_component(group[0]).config == config:
                groups[index] = (*group, name)
                break
        else:
            groups.append((name,))
    return groups


def _untraced(
    model: PreTrainedModel,
    inputs: Mapping[str, Any],
    spec: ExportSpec,
    names: Sequence[str],
    tensors: ProbeTensors,
    media: MediaPrompts | None,
) -> Iterator[GraphCase]:
    seen: set[tuple[Any, ...]] = set()
    own = spec.for_component(names[0])
    for sizes in UNTRACED:
        sample = resized(model, inputs, own, sizes) if media is None else media.resized(sizes)
        shapes = tuple((name, tuple(getattr(value, "shape", ()))) for name, value in sample.items())
        # A spec without dynamic sizes gets other values at the traced shape, once.
        if shapes in seen:
            continue
        seen.add(shapes)
        for component in capture_components(model, sample, spec):
            if component.name in names:
                yield _case(component, str(sizes), False, tensors)


def _case(component: Component, name: str, traced: bool, tensors: ProbeTensors) -> GraphCase:
    kwargs, flags = split_flags(component.module, copy.deepcopy(component.inputs))
    before = get_leaf_tensors(dict(kwargs))
    # Recorded before the call, which may update a cache in place.
    inputs = tensors.add(before)
    padding = _padding(before)
    with torch.no_grad():
        result = component.module(**kwargs, **flags)
    return GraphCase(
        component.name, name, traced, inputs, tensors.add(get_leaf_tensors(result)), padding
    )


def _padding(inputs: Mapping[str, torch.Tensor]) -> str | None:
    """The mask that has a value for each position of this call, if one is padded.

    A decoder's own mask comes before the encoder's.
    """
    for ids_name, mask_name in reversed(PADDING_NAMES):
        ids, mask = inputs.get(ids_name), inputs.get(mask_name)
        if ids is not None and mask is not None and ids.shape == mask.shape and not mask.all():
            return mask_name
    vectors = inputs.get("inputs_embeds")
    return None if vectors is None else _padding_of_vectors(vectors, inputs)


def _padding_of_vectors(vectors: torch.Tensor, inputs: Mapping[str, torch.Tensor]) -> str | None:
    """The mask of a language model that is fed vectors: of positions, or of a static cache's."""
    for name, mask in inputs.items():
        if name.partition(".")[0] != "attention_mask":
            continue
        if mask.ndim == 2 and mask.shape == vectors.shape[:2] and not mask.all():
            return name
        if mask.ndim == 4 and mask.shape[2] == vectors.shape[1] and not mask.any(-1).all():
            return name
    return None
