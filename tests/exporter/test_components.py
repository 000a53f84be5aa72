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
    MambaConfig,
    MambaForCausalLM,
    PreTrainedModel,
    T5Config,
    T5ForConditionalGeneration,
)
from transformers.exporters.utils import decompose_for_generation, get_leaf_tensors

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


def _t5() -> T5ForConditionalGeneration:
    torch.manual_seed(0)
    config = T5Config(
        vocab_size=64,
        d_model=32,
        d_kv=16,
        d_ff=32,
        num_layers=1,
        num_heads=2,
        decoder_start_token_id=0,
    )
    return T5ForConditionalGeneration(config).eval()


def test_an_encoder_decoder_has_its_encoder_and_keeps_its_prefill() -> None:
    names = _names(_t5(), _spec(for_generation=True, multi_token_decode=True))
    assert names == ["encoder", "prefill", "decode"]


def test_the_encoder_makes_what_the_prefill_takes() -> None:
    model, spec = _t5(), _spec(for_generation=True)
    inputs = build_sample_inputs(model, None, spec)
    encoder, prefill, _ = build_components(model, inputs, spec)
    with torch.no_grad():
        hidden = encoder.module(**encoder.inputs).last_hidden_state
    torch.testing.assert_close(hidden, prefill.inputs["encoder_outputs"].last_hidden_state)


@pytest.mark.parametrize("multi_token_decode", [False, True])
def test_an_encoder_decoders_step_follows_two_tokens(multi_token_decode: bool) -> None:
    """A cache of one position is frozen by the trace: sizes 0 and 1 always are."""
    model, spec = _t5(), _spec(for_generation=True, multi_token_decode=multi_token_decode)
    *_, decode = build_components(model, build_sample_inputs(model, None, spec), spec)
    leaves = get_leaf_tensors(decode.inputs)
    assert leaves["decoder_input_ids"].shape == (2, 1)
    assert leaves["cache.self_attention_cache.layers.0.keys"].shape[2] == 2


def test_upstream_still_captures_a_cache_of_one_position() -> None:
    """transformers 5.24.0. If this fails, so does the reason to ask for two steps."""
    model, spec = _t5(), _spec(for_generation=True)
    inputs = build_sample_inputs(model, None, spec)
    stages = decompose_for_generation(
        model, inputs, generation_config=capture_generation_config(model, spec)
    )
    leaves = get_leaf_tensors(dict(stages["decode"][1]))
    assert leaves["cache.self_attention_cache.layers.0.keys"].shape[2] == 1


def test_upstream_still_captures_no_encoder() -> None:
    """transformers 5.24.0. If this fails, `captured_encoder` is no longer needed."""
    model, spec = _t5(), _spec(for_generation=True)
    inputs = build_sample_inputs(model, None, spec)
    config = capture_generation_config(model, spec)
    assert list(decompose_for_generation(model, inputs, generation_config=config)) == [
        "prefill",
        "decode",
    ]


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


def test_a_recurrent_model_decodes_from_states_of_zero_one_token_at_a_time() -> None:
    model = MambaForCausalLM(
        MambaConfig(hidden_size=16, state_size=4, num_hidden_layers=1, vocab_size=64)
    ).eval()
    assert _names(model, _spec(for_generation=True)) == ["decode"]
    with pytest.raises(ExportError, match="goes wrong on several tokens after others"):
        _names(model, _spec(for_generation=True, multi_token_decode=True))


def test_upstream_still_goes_wrong_on_several_tokens_after_a_recurrent_state() -> None:
    """transformers 5.24.0. If this fails, the refusal above is no longer needed."""
    torch.manual_seed(0)
    model = MambaForCausalLM(
        MambaConfig(hidden_size=16, state_size=4, num_hidden_layers=1, vocab_size=64)
    ).eval()
    ids = torch.randint(0, 64, (1, 8))
    with torch.no_grad():
        whole = model(input_ids=ids).logits
        first = model(input_ids=ids[:, :4], use_cache=True)
        second = model(input_ids=ids[:, 4:], cache=first.cache, use_cache=True)
    assert not torch.allclose(second.logits, whole[:, 4:], atol=1e-5)


def test_a_static_cache_that_would_freeze_an_encoder_is_refused() -> None:
    spec = _spec(
        for_generation=True,
        generation_config={"cache_implementation": "static", "max_cache_len": 32},
    )
    with pytest.raises(ExportError, match="keep the length of the sample inputs"):
        _names(_t5(), spec)
