"""Calibration samples: what each component is called with for the lines that calibrate."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from transformers import Cache, DynamicCache, PreTrainedModel, PreTrainedTokenizerBase, StaticCache

from model_export.exporter.components import capture_stages
from model_export.exporter.custom_inputs import has_custom_components
from model_export.exporter.errors import ExportError
from model_export.exporter.quantizers.calibration_lines import FIELD, CalibrationLine
from model_export.exporter.quantizers.calibration_media import (
    check_accepted,
    check_complete,
    media_inputs,
    refused,
    render,
    without_made,
)
from model_export.exporter.samples import PADDING_NAMES, pad_token
from model_export.spec import ExportSpec

# A traced axis is at least two.
_CACHED = 2
_PER_TOKEN = ("input_ids", "position_ids", "attention_mask")


def calibration_inputs(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None,
    traced: Mapping[str, Any],
    spec: ExportSpec,
    lines: Sequence[CalibrationLine],
    processor: Any | None = None,
) -> Iterator[dict[str, Any]]:
    """`lines` in batches, as kwargs of `model(...)` or `model.generate(...)`.

    Batches are as large as the one that is traced, the last one filled up from the start; a static
    export keeps the traced length too. Each has a position of padding at least: without one,
    `generate` drops the mask (transformers 5.24.0), and a graph that takes one can't be fed.
    What no line makes, such as a decoder's first ids, is as in the traced inputs.
    """
    takes_text = isinstance(traced.get("input_ids"), torch.Tensor)
    main = traced.get("input_ids" if takes_text else model.main_input_name)
    if not isinstance(main, torch.Tensor):
        raise ExportError(
            FIELD,
            f"can't be put in batches: {type(model).__name__} is traced without its main input",
            "Remove `calibration`: the sample inputs then calibrate",
        )
    batch = main.shape[0]
    side = _padding_side(tokenizer, spec)
    for start in range(0, len(lines), batch):
        group = [lines[(start + row) % len(lines)] for row in range(batch)]
        if any(line.images or line.audio for line in group):
            texts = [render(processor, tokenizer, line) for line in group] if takes_text else None
            inputs = media_inputs(model, processor, traced, spec, group, texts)
        else:
            inputs = _text_inputs(model, tokenizer, traced, spec, group, processor)
        _pad(inputs, pad_token(model), side)
        if not spec.for_generation:
            check_complete(inputs, traced, model, group)
            if start == 0 and not has_custom_components(spec):
                check_accepted(model, inputs, group)
        yield inputs


def _padding_side(tokenizer: PreTrainedTokenizerBase | None, spec: ExportSpec) -> str:
    if spec.for_generation or tokenizer is None:
        return "left"
    return str(tokenizer.padding_side)


def _text_inputs(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None,
    traced: Mapping[str, Any],
    spec: ExportSpec,
    group: Sequence[CalibrationLine],
    processor: Any | None,
) -> dict[str, Any]:
    if tokenizer is None or not isinstance(traced.get("input_ids"), torch.Tensor):
        raise ExportError(
            FIELD,
            f"hold text, and {type(model).__name__} is fed something else or has no tokenizer",
            "Remove `calibration`: the sample inputs then calibrate",
        )
    assert spec.calibration is not None
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    limit = min(spec.calibration["max_length"], tokenizer.model_max_length)
    encoded = tokenizer(
        [render(processor, tokenizer, line) for line in group],
        padding="longest" if spec.is_dynamic else "max_length",
        truncation=True,
        max_length=limit if spec.is_dynamic else traced["input_ids"].shape[1],
        padding_side=_padding_side(tokenizer, spec),
        return_tensors="pt",
    )
    made = {key: encoded[key] for key in traced if key in encoded}
    return {**without_made(traced, processor), **made}


def _pad(inputs: dict[str, Any], pad: int, side: str) -> None:
    """Make the last row's outermost position padding where no row has any."""
    for ids_name, mask_name in PADDING_NAMES[:1]:
        mask = inputs.get(mask_name)
        if mask is None or not bool(mask.all()) or mask.shape[1] < 2:
            continue
        column = 0 if side == "left" else -1
        mask[-1, column] = 0
        inputs[ids_name][-1, column] = pad


def component_inputs(
    model: PreTrainedModel, batches: Iterator[dict[str, Any]], spec: ExportSpec
) -> dict[str, list[dict[str, Any]]]:
    """What each component is called with for `batches`, by its name.

    A decode graph of several tokens serves the prompt as well, and calibrates on it, too.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for number, inputs in enumerate(batches, start=1):
        try:
            captured = capture_stages(model, inputs, spec)
        except ExportError:
            raise
        except Exception as error:  # models check with exceptions of every type
            if spec.calibration is None:
                raise
            raise refused(model, error, f"batch {number} of those drawn") from error
        stages = {stage.name: stage.inputs for stage in captured}
        for name, kwargs in stages.items():
            found.setdefault(name, []).append(kwargs)
        if spec.multi_token_decode and "prefill" in stages and "decode" in stages:
            prompt = prompt_on_cache(stages["prefill"], stages["decode"])
            if prompt is not None:
                found["decode"].append(prompt)
    return found


def prompt_on_cache(prefill: Mapping[str, Any], decode: Mapping[str, Any]) -> dict[str, Any] | None:
    """A call of the decode graph with the prompt, on a cache as that graph takes it.

    transformers 5.24.0 (`capture_calibration_inputs`) takes the prefill's own call instead, whose
    cache has no tensors yet, and which graphs can't be fed with: ONNX Runtime misses the cache's
    inputs. `decode` was called after the prompt, so its cache has the keys and values of every
    position: a growing one keeps those of the first two, a static one is emptied.

    None for a prompt that is too short, and for other caches.
    """
    caches = [name for name, value in decode.items() if isinstance(value, Cache)]
    ids = prefill.get("input_ids")
    if len(caches) != 1 or ids is None or ids.shape[1] < 2 * _CACHED:
        return None
    cache = copy.deepcopy(decode[caches[0]])
    fed = {name: prefill[name] for name in _PER_TOKEN if name in prefill and name in decode}
    if isinstance(cache, StaticCache):
        cache.reset()
    elif isinstance(cache, DynamicCache):
        cache.crop(_CACHED - cache.get_seq_length())
        # The mask is of all positions, cached ones too.
        fed.update({name: fed[name][..., _CACHED:] for name in fed if name != "attention_mask"})
    else:
        return None
    return {**decode, **fed, caches[0]: cache}
