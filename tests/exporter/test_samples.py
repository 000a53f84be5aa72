"""Sample inputs avoid what the engine freezes or drops, and refuse what a model doesn't take."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    BertConfig,
    BertModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
    ViTConfig,
    ViTModel,
)

from exporter.backends.tiny_models import tiny_whisper
from exporter.backends.tiny_multimodal import tiny_llava
from model_export.exporter.errors import ExportError
from model_export.exporter.samples import build_sample_inputs
from model_export.spec import ExportSpec

_SIZES: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}


def _llama() -> LlamaForCausalLM:
    return LlamaForCausalLM(LlamaConfig(vocab_size=64, intermediate_size=32, **_SIZES))


def _tokenizer() -> PreTrainedTokenizerFast:
    vocabulary = {"<pad>": 0, "<eos>": 1, "<unk>": 2, "a": 3, "b": 4, "c": 5}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<eos>", unk_token="<unk>")


def _spec(**changes: Any) -> ExportSpec:
    return ExportSpec("onnx", {"dynamic": True, "dynamic_shapes": None}, **changes)


def _check_text_trace(inputs: dict[str, torch.Tensor]) -> None:
    """Two sequences, longer than one, and a mask that generate can't drop."""
    batch, length = inputs["input_ids"].shape
    assert batch == 2 and length > 1
    assert inputs["attention_mask"].shape == (batch, length)
    assert 0 < int(inputs["attention_mask"].sum()) < batch * length


@pytest.mark.parametrize("texts", [None, ["a b c", "a"], ["a b", "b a"]])
def test_text_is_padded_on_the_left_for_generation(texts: list[str] | None) -> None:
    samples = None if texts is None else {"text": texts}
    inputs = build_sample_inputs(
        _llama(), _tokenizer(), _spec(for_generation=True, sample_inputs=samples)
    )
    _check_text_trace(inputs)
    assert inputs["attention_mask"][:, -1].tolist() == [1, 1]


def test_default_without_tokenizer_is_the_same_every_time() -> None:
    first = build_sample_inputs(_llama(), None, _spec())
    second = build_sample_inputs(_llama(), None, _spec())
    _check_text_trace(first)
    assert first["input_ids"].tolist() == second["input_ids"].tolist()
    assert int(first["input_ids"].max()) < 64


def test_encoder_gets_what_its_tokenizer_makes_and_it_takes() -> None:
    config = BertConfig(vocab_size=64, intermediate_size=32, **_SIZES)
    inputs = build_sample_inputs(BertModel(config), _tokenizer(), _spec())
    _check_text_trace(inputs)
    assert set(inputs) <= {"input_ids", "attention_mask", "token_type_ids"}


@pytest.mark.parametrize(
    ("model", "shapes"),
    [
        (
            ViTModel(ViTConfig(image_size=32, patch_size=16, intermediate_size=32, **_SIZES)),
            {"pixel_values": (2, 3, 32, 32)},
        ),
        (
            tiny_whisper(),
            {"input_features": (2, 16, 100), "decoder_input_ids": (2, 8)},
        ),
        (
            T5ForConditionalGeneration(
                T5Config(vocab_size=64, d_model=32, d_kv=16, d_ff=32, num_layers=1, num_heads=2)
            ),
            {"input_ids": (2, 8), "attention_mask": (2, 8), "decoder_input_ids": (2, 8)},
        ),
    ],
    ids=["vit", "whisper", "t5"],
)
def test_defaults_by_architecture_run(
    model: PreTrainedModel, shapes: dict[str, tuple[int, ...]]
) -> None:
    inputs = build_sample_inputs(model, None, _spec())
    assert {name: tuple(value.shape) for name, value in inputs.items()} == shapes
    with torch.no_grad():
        model.eval()(**inputs)


def test_tensors_by_shape_range_and_values() -> None:
    samples = {
        "input_ids": {"shape": [3, 5], "dtype": "int64", "range": [7, 9]},
        "attention_mask": {"values": [[0, 1, 1, 1, 1]] * 3, "dtype": "int64"},
    }
    inputs = build_sample_inputs(_llama(), None, _spec(sample_inputs=samples))
    assert inputs["input_ids"].shape == (3, 5)
    assert set(inputs["input_ids"].unique().tolist()) == {7, 8}
    assert inputs["attention_mask"].tolist() == [[0, 1, 1, 1, 1]] * 3


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ({"text": ["a"]}, "a traced batch of one is frozen at one"),
        ({"pixels": {"shape": [1], "dtype": "float32"}}, "is no input of LlamaForCausalLM"),
        ({"input_ids": {"values": [[1], [2, 3]], "dtype": "int64"}}, "is no tensor"),
    ],
)
def test_refused(samples: dict[str, Any], message: str) -> None:
    with pytest.raises(ExportError, match=message):
        build_sample_inputs(_llama(), _tokenizer(), _spec(sample_inputs=samples))


def test_text_without_tokenizer_is_refused() -> None:
    with pytest.raises(ExportError, match="needs a tokenizer, and the checkpoint has none"):
        build_sample_inputs(_llama(), None, _spec(sample_inputs={"text": ["a", "b c"]}))


IDS = {"values": [[1, 3, 4], [1, 4, 3]], "dtype": "int64"}


@pytest.mark.parametrize("for_generation", [True, False])
@pytest.mark.parametrize("samples", [{"text": ["a b", "b"]}, {"decoder_input_ids": IDS}])
def test_whisper_without_sound_is_refused(samples: dict[str, Any], for_generation: bool) -> None:
    spec = _spec(for_generation=for_generation, sample_inputs=samples)
    message = (
        r"`sample_inputs` has no 'input_features', which WhisperForConditionalGeneration starts "
        r"from\. Add 'audio', or its shape or values"
    )
    with pytest.raises(ExportError, match=message):
        build_sample_inputs(tiny_whisper(), _tokenizer(), spec)


def test_images_without_a_prompt_are_refused() -> None:
    pixels = {"shape": [2, 3, 16, 16], "dtype": "float32"}
    spec = _spec(for_generation=True, sample_inputs={"pixel_values": pixels})
    with pytest.raises(ExportError, match=r"has no 'input_ids', which Llava.* Add 'text', or its"):
        build_sample_inputs(tiny_llava(), None, spec)
