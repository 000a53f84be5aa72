"""Which components an export has, and that what is captured doesn't depend on the machine."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import (
    BertConfig,
    BertModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    T5Config,
    T5ForConditionalGeneration,
)
from transformers.exporters.utils import get_leaf_tensors

from model_export.exporter.components import build_components, capture_generation_config
from model_export.exporter.errors import ExportError
from model_export.exporter.samples import build_sample_inputs
from model_export.spec import ExportSpec


def _llama() -> LlamaForCausalLM:
    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=64,
            hidden_size=32,
            intermediate_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
        )
    ).eval()


def _spec(**changes: Any) -> ExportSpec:
    return ExportSpec("onnx", {"dynamic": True, "dynamic_shapes": None}, **changes)


def _names(model: PreTrainedModel, spec: ExportSpec) -> list[str]:
    inputs = build_sample_inputs(model, None, spec)
    return [component.name for component in build_components(model, inputs, spec)]


def test_plain_export_is_the_model_itself() -> None:
    assert _names(_llama(), _spec()) == ["model"]


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({}, ["prefill", "decode"]),
        ({"multi_token_decode": True}, ["decode"]),
        ({"multi_token_decode": True, "components": ("prefill", "decode")}, ["prefill", "decode"]),
        ({"components": ("prefill",)}, ["prefill"]),
    ],
)
def test_generation_components(changes: dict[str, Any], names: list[str]) -> None:
    assert _names(_llama(), _spec(for_generation=True, **changes)) == names


def test_an_encoder_decoder_keeps_its_prefill() -> None:
    config = T5Config(
        vocab_size=64,
        d_model=32,
        d_kv=16,
        d_ff=32,
        num_layers=1,
        num_heads=2,
        decoder_start_token_id=0,
    )
    model = T5ForConditionalGeneration(config).eval()
    names = _names(model, _spec(for_generation=True, multi_token_decode=True))
    assert names == ["prefill", "decode"]


def test_captured_floats_and_ids_are_blank() -> None:
    model, spec = _llama(), _spec(for_generation=True, multi_token_decode=True)
    (decode,) = build_components(model, build_sample_inputs(model, None, spec), spec)
    leaves = get_leaf_tensors(decode.inputs)
    caches = [tensor for name, tensor in leaves.items() if tensor.is_floating_point()]
    assert len(caches) == 4  # Keys and values of two layers.
    assert all(not tensor.any() for tensor in caches)
    assert not leaves["input_ids"].any()
    assert leaves["position_ids"].tolist() == [[8, 9], [5, 6]]
    assert leaves["attention_mask"][1].tolist() == [0, 0, 0] + [1] * 7


def test_generation_config_reaches_the_capture() -> None:
    model = _llama()
    settings = {"cache_implementation": "static", "max_cache_len": 48}
    spec = _spec(for_generation=True, multi_token_decode=True, generation_config=settings)
    (decode,) = build_components(model, build_sample_inputs(model, None, spec), spec)
    leaves = get_leaf_tensors(decode.inputs)
    assert {tensor.shape[2] for tensor in leaves.values() if tensor.is_floating_point()} == {48}
    model.generation_config.do_sample = True
    assert capture_generation_config(model, spec).do_sample is False


def test_refusals_name_the_field() -> None:
    bert = BertModel(
        BertConfig(
            vocab_size=64,
            hidden_size=32,
            intermediate_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
        )
    )
    with pytest.raises(ExportError, match="`for_generation` is set, but BertModel can't generate"):
        _names(bert, _spec(for_generation=True))
    with pytest.raises(ExportError, match="names 'image_encoder', which LlamaForCausalLM"):
        _names(_llama(), _spec(for_generation=True, components=("image_encoder",)))
    with pytest.raises(ExportError, match=r"generation_config\['max_cache'\]"):
        _names(_llama(), _spec(for_generation=True, generation_config={"max_cache": 3}))
