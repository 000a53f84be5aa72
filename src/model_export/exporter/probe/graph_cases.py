"""Calls of single components, run eagerly at the traced shape and at shapes never traced."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.exporters.utils import get_leaf_tensors

from model_export.exporter.components import Component, capture_components
from model_export.exporter.output_flags import split_flags
from model_export.exporter.probe.tensors import ProbeTensors
from model_export.exporter.probe.variants import UNTRACED, resized
from model_export.exporter.samples import PADDING_NAMES
from model_export.probe import GraphCase
from model_export.spec import ExportSpec


def record_graph_cases(
    model: PreTrainedModel, inputs: Mapping[str, Any], spec: ExportSpec, tensors: ProbeTensors
) -> Iterator[GraphCase]:
    """Every component of `spec` at the shape of `inputs` (the sample inputs) and at two others."""
    seen: set[tuple[Any, ...]] = set()
    for sizes in (None, *UNTRACED):
        sample = dict(inputs) if sizes is None else resized(model, inputs, spec, sizes)
        shapes = tuple((name, tuple(getattr(value, "shape", ()))) for name, value in sample.items())
        # A spec without dynamic sizes gets other values at the traced shape, once.
        if (sizes is not None, shapes) in seen:
            continue
        seen.add((sizes is not None, shapes))
        for component in capture_components(model, sample, spec):
            name = "traced" if sizes is None else str(sizes)
            yield _case(component, name, sizes is None, tensors)


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
    return None
