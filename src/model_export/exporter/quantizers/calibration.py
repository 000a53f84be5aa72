"""Calibration samples from files: which, and as what each component is called with."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import Cache, DynamicCache, PreTrainedModel, PreTrainedTokenizerBase, StaticCache

from model_export.exporter.components import capture_stages
from model_export.exporter.errors import ExportError
from model_export.exporter.samples import PADDING_NAMES, pad_token
from model_export.spec import ExportSpec

_FIELD = "calibration['files']"
_KEYS = ("text", "messages")
# A traced axis is at least two.
_CACHED = 2
_PER_TOKEN = ("input_ids", "position_ids", "attention_mask")


def choose_lines(spec: ExportSpec, folder: Path) -> list[dict[str, Any]]:
    """The lines that calibrate: `samples` of all, drawn with `seed`, in the order drawn.

    The same lines on every machine: NumPy's PCG64 is specified bit by bit. Raises ExportError for
    a line that isn't a JSON object with `text` or `messages`.
    """
    assert spec.calibration is not None
    lines = [line for path in spec.calibration["files"] for line in _read(folder / path, path)]
    if not lines:
        raise ExportError(_FIELD, "have no line", 'Write one JSON object a line: {"text": "..."}')
    draw = np.random.Generator(np.random.PCG64(spec.calibration["seed"]))
    order = draw.permutation(len(lines))[: spec.calibration["samples"]]
    return [lines[index] for index in order]


def _read(file: Path, name: str) -> Iterator[dict[str, Any]]:
    text = file.read_text(encoding="utf-8")
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except json.JSONDecodeError as error:
            raise ExportError(
                _FIELD, f"have no JSON in {name}, line {number} ({error.msg})", "Correct the line"
            ) from error
        keys = [key for key in _KEYS if isinstance(value, dict) and value.get(key)]
        kinds = {"text": str, "messages": list}
        if len(keys) != 1 or not isinstance(value[keys[0]], kinds[keys[0]]):
            raise ExportError(
                _FIELD,
                f"have neither `text` nor `messages` in {name}, line {number}",
                'Write {"text": "..."} or {"messages": [{"role": "user", "content": "..."}]}',
            )
        yield value


def calibration_inputs(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None,
    traced: Mapping[str, Any],
    spec: ExportSpec,
    lines: Sequence[Mapping[str, Any]],
) -> Iterator[dict[str, Any]]:
    """`lines` in batches, as kwargs of `model(...)` or `model.generate(...)`.

    Batches are as large as the one that is traced, the last one filled up from the start; a static
    export keeps the traced length too. Each has a position of padding at least: without one,
    `generate` drops the mask (transformers 5.24.0), and a graph that takes one can't be fed.
    What no text makes, such as a decoder's first ids, is as in the traced inputs.
    """
    assert spec.calibration is not None
    if tokenizer is None or not isinstance(traced.get("input_ids"), torch.Tensor):
        raise ExportError(
            _FIELD,
            f"hold text, and {type(model).__name__} is fed something else or has no tokenizer",
            "Remove `calibration`: the sample inputs then calibrate",
        )
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    texts = [_text(tokenizer, line) for line in lines]
    batch, length = traced["input_ids"].shape
    side = "left" if spec.for_generation else tokenizer.padding_side
    limit = min(spec.calibration["max_length"], tokenizer.model_max_length)
    for start in range(0, len(texts), batch):
        group = [texts[(start + row) % len(texts)] for row in range(batch)]
        encoded = tokenizer(
            group,
            padding="longest" if spec.is_dynamic else "max_length",
            truncation=True,
            max_length=limit if spec.is_dynamic else length,
            padding_side=side,
            return_tensors="pt",
        )
        inputs = {**traced, **{key: encoded[key] for key in traced if key in encoded}}
        _pad(inputs, pad_token(model), side)
        yield inputs


def _text(tokenizer: PreTrainedTokenizerBase, line: Mapping[str, Any]) -> str:
    if "text" in line:
        return str(line["text"])
    if not tokenizer.chat_template:
        raise ExportError(
            _FIELD,
            "have `messages`, and the checkpoint's tokenizer has no chat template",
            'Write {"text": "..."}, or add a chat_template.jinja to the checkpoint',
        )
    return str(tokenizer.apply_chat_template(line["messages"], tokenize=False))


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
    for inputs in batches:
        stages = {stage.name: stage.inputs for stage in capture_stages(model, inputs, spec)}
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
