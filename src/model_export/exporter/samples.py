"""The inputs that a model is traced with: the target's own, or defaults by the model's kind.

Shapes matter more than values. A batch of one, or a sequence of one, is frozen by torch.export
(sizes 0 and 1 are always specialised), and an attention mask of ones is dropped by `generate`, so
that the exported graph takes no mask at all (transformers 5.24.0). So text comes in a batch of two
of unequal length, padded on the left for generation.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from model_export.exporter.custom_inputs import custom_inputs
from model_export.exporter.errors import ExportError
from model_export.exporter.multimodal_stages import sees_or_hears
from model_export.exporter.sample_media import SampleMedia, process
from model_export.spec import SAMPLE_FILES, ExportSpec

DEFAULT_TEXTS = ("Hello, world! How are you today?", "Hi there")
BATCH = 2
SEQUENCE = 8
PADDING = 3  # On the left of the second sequence.
# Inputs that hold token ids, and the mask that marks their padding.
PADDING_NAMES = (
    ("input_ids", "attention_mask"),
    ("decoder_input_ids", "decoder_attention_mask"),
)
# The key of `sample_inputs` that becomes a model's main input.
_MADE_FROM = {
    "input_ids": "text",
    "input_features": "audio",
    "input_values": "audio",
    "pixel_values": "images",
}


def build_sample_inputs(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None,
    spec: ExportSpec,
    media: SampleMedia | None = None,
) -> dict[str, Any]:
    """Keyword arguments for `model(...)`, or `model.generate(...)` where the spec generates.

    `media` are the images and the sound that the spec names.

    Raises ExportError for an input that the model doesn't take, for one that it can't do without,
    for text without a tokenizer, and for a model whose inputs have no default.
    """
    custom = custom_inputs(spec)
    if custom is not None and custom.has_sample_inputs:
        return custom.sample_inputs(model, tokenizer)
    given = spec.sample_inputs
    accepted = tuple(inspect.signature(model.forward).parameters)
    if given is None:
        inputs = _default_inputs(model, tokenizer, spec)
    else:
        inputs = {}
        if media is not None:
            inputs.update(process(media, given.get("text"), spec, pad_token(model)))
        elif "text" in given:
            inputs.update(_tokenize(tokenizer, given["text"], spec))
        for name, description in given.items():
            if name in ("text", *SAMPLE_FILES):
                continue
            if name not in accepted:
                raise ExportError(
                    f"sample_inputs[{name!r}]",
                    f"is no input of {type(model).__name__}",
                    f"It takes {', '.join(n for n in accepted if n != 'kwargs')}",
                )
            inputs[name] = _tensor(name, description, model)
    inputs = {name: value for name, value in inputs.items() if name in accepted}
    if custom is None:
        _check_main_input(model, inputs, spec)
    return inputs


def _check_main_input(model: PreTrainedModel, inputs: Mapping[str, Any], spec: ExportSpec) -> None:
    """Raise ExportError where what the model starts from is missing: Whisper's sound, for one."""
    if model.config.is_encoder_decoder:
        name, others = model.main_input_name, {"inputs_embeds"}
    elif spec.for_generation and sees_or_hears(model):
        name, others = "input_ids", set()
    else:
        return
    if not {name, *others} & set(inputs):
        made_from = _MADE_FROM.get(name)
        raise ExportError(
            "sample_inputs",
            f"has no {name!r}, which {type(model).__name__} starts from",
            f"Add {f'{made_from!r}, or ' if made_from else ''}its shape or values",
        )


def _default_inputs(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None, spec: ExportSpec
) -> dict[str, Any]:
    main = model.main_input_name
    config = model.config
    if main == "input_ids":
        if tokenizer is not None:
            inputs = _tokenize(tokenizer, list(DEFAULT_TEXTS), spec)
        else:
            inputs = _random_tokens(model)
    elif main == "pixel_values":
        size = getattr(config, "image_size", 224)
        height, width = (size, size) if isinstance(size, int) else tuple(size)
        channels = getattr(config, "num_channels", 3)
        inputs = {main: _floats(main, (BATCH, channels, height, width), model.dtype)}
    elif main == "input_features" and hasattr(config, "num_mel_bins"):
        frames = 2 * getattr(config, "max_source_positions", 1500)
        inputs = {main: _floats(main, (BATCH, config.num_mel_bins, frames), model.dtype)}
    else:
        raise ExportError(
            "sample_inputs",
            f"is not given, and {type(model).__name__}'s input {main!r} has no default",
            f'Describe each input: {{"{main}": {{"shape": [2, ...], "dtype": "float32"}}}}',
        )
    if config.is_encoder_decoder and not spec.for_generation:
        inputs["decoder_input_ids"] = _random_tokens(model)["input_ids"]
    return inputs


def _tokenize(
    tokenizer: PreTrainedTokenizerBase | None, texts: list[str], spec: ExportSpec
) -> dict[str, torch.Tensor]:
    if tokenizer is None:
        raise ExportError(
            "sample_inputs['text']",
            "needs a tokenizer, and the checkpoint has none",
            "Add the tokenizer's files to the checkpoint, or describe the inputs by shape",
        )
    if spec.is_dynamic and len(texts) < BATCH:
        raise ExportError(
            "sample_inputs['text']",
            "has one text, and a traced batch of one is frozen at one",
            "Give two texts of different length, or export without dynamic shapes",
        )
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    side = "left" if spec.for_generation else tokenizer.padding_side
    longest = max(len(tokenizer(text)["input_ids"]) for text in texts)
    inputs = dict(
        tokenizer(texts, padding="longest", padding_side=side, return_tensors="pt").items()
    )
    mask = inputs.get("attention_mask")
    if mask is not None and bool(mask.all()) and spec.is_dynamic:
        # Texts of equal length: one more column of padding keeps the mask from being dropped.
        inputs = dict(
            tokenizer(
                texts,
                padding="max_length",
                max_length=longest + 1,
                padding_side=side,
                return_tensors="pt",
            ).items()
        )
    return inputs


def _random_tokens(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    """`input_ids` and `attention_mask` (int64, [2, 8]), the second row padded on the left."""
    text_config = model.config.get_text_config(decoder=True)
    draw = np.random.Generator(np.random.PCG64(0))
    # The lowest ids are usually special ones (padding, end of text).
    low = min(10, text_config.vocab_size // 2)
    ids = draw.integers(low, text_config.vocab_size, size=(BATCH, SEQUENCE))
    mask = np.ones((BATCH, SEQUENCE), dtype=np.int64)
    ids[1, :PADDING] = pad_token(model)
    mask[1, :PADDING] = 0
    return {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(mask)}


def pad_token(model: PreTrainedModel) -> int:
    """The id that stands at padded positions, whose value nothing reads: 0 where there is none."""
    pad = getattr(model.config.get_text_config(decoder=True), "pad_token_id", None)
    return pad if isinstance(pad, int) and pad >= 0 else 0


def _floats(name: str, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Uniform numbers in [0, 1), the same on every machine for the same name and shape."""
    draw = np.random.Generator(np.random.PCG64(list(name.encode())))
    return torch.from_numpy(draw.random(shape, dtype=np.float32)).to(dtype)


def _tensor(name: str, description: Mapping[str, Any], model: PreTrainedModel) -> torch.Tensor:
    dtype: torch.dtype = getattr(torch, description["dtype"])
    if "values" in description:
        try:
            return torch.tensor(description["values"], dtype=dtype)
        except (TypeError, ValueError) as error:
            raise ExportError(
                f"sample_inputs[{name!r}]['values']",
                f"is no tensor: {error}",
                "Write nested lists of equal length",
            ) from error
    shape = tuple(description["shape"])
    if dtype.is_floating_point:
        low, high = description.get("range", (0.0, 1.0))
        return (_floats(name, shape, torch.float32) * (high - low) + low).to(dtype)
    if "range" in description:
        low, high = description["range"]
    elif dtype == torch.bool or name.endswith("mask"):
        low, high = 1, 2
    else:
        low, high = 0, model.config.get_text_config().vocab_size
    draw = np.random.Generator(np.random.PCG64(list(name.encode())))
    return torch.from_numpy(draw.integers(low, high, size=shape)).to(dtype)
