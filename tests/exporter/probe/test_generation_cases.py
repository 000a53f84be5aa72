"""What the probe records of generations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import Gemma3ForCausalLM, Gemma3TextConfig, PreTrainedModel

from exporter.backends.tiny_models import generation_spec, left_padded, tiny_bart, tiny_qwen3
from model_export.exporter.probe import record_probe
from model_export.probe import TENSORS_FILE, GenerationCase, read_probe


def record(
    model: PreTrainedModel, folder: Path, **fields: Any
) -> list[tuple[GenerationCase, dict[str, torch.Tensor]]]:
    spec = generation_spec("dynamo", {}, **fields)
    record_probe(model, None, left_padded(2, 8, 3), spec, folder)
    tensors = load_file(folder / TENSORS_FILE)
    return [
        (
            case,
            {
                "tokens": tensors[case.tokens],
                "logits": tensors[case.logits],
                **{name: tensors[key] for name, key in case.inputs.items()},
            },
        )
        for case in read_probe(folder).generations
    ]


def whole_sequence_logits(model: PreTrainedModel, case: dict[str, torch.Tensor]) -> torch.Tensor:
    """The same logits from one forward pass without any cache: [batch, steps, vocabulary]."""
    steps = case["tokens"].shape[1]
    ids = torch.cat([case["input_ids"], case["tokens"]], dim=1)
    mask = torch.cat([case["attention_mask"], torch.ones_like(case["tokens"])], dim=1)
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    with torch.no_grad():
        logits = model(input_ids=ids, attention_mask=mask, position_ids=positions).logits
    return logits[:, -steps - 1 : -1]


def test_logits_are_those_of_one_pass_without_a_cache(tmp_path: Path) -> None:
    model = tiny_qwen3()
    for case, tensors in record(model, tmp_path):
        expected = whole_sequence_logits(model, tensors)
        torch.testing.assert_close(tensors["logits"], expected, rtol=0, atol=1e-5)
        assert torch.equal(tensors["logits"].argmax(-1), tensors["tokens"]), case.name


def test_prompts_are_a_padded_batch_a_single_one_in_chunks_and_another(tmp_path: Path) -> None:
    cases = record(tiny_qwen3(), tmp_path)
    assert [len(tensors["input_ids"]) for _, tensors in cases] == [2, 1, 3]
    assert not cases[0][1]["attention_mask"].all()
    assert len(cases[1][0].chunks) == 3
    for case, tensors in cases:
        assert sum(case.chunks) == tensors["input_ids"].shape[1]


def test_what_the_generation_config_of_a_model_forbids_is_not_forbidden(tmp_path: Path) -> None:
    model = tiny_qwen3()
    free = [tensors["tokens"] for _, tensors in record(model, tmp_path / "free")]
    model.generation_config.suppress_tokens = free[0].unique().tolist()
    model.generation_config.eos_token_id = int(free[0][0, 0])
    model.generation_config.repetition_penalty = 9.0
    bound = [tensors["tokens"] for _, tensors in record(model, tmp_path / "bound")]
    for one, other in zip(free, bound, strict=True):
        assert torch.equal(one, other)


def test_growing_caches_grow_and_static_ones_do_not(tmp_path: Path) -> None:
    static = {"cache_implementation": "static", "max_cache_len": 48}
    growing = record(tiny_qwen3(), tmp_path / "growing")[0][0]
    fixed = record(tiny_qwen3(), tmp_path / "static", generation_config=static)[0][0]
    lengths = [shape[1] for shape in growing.cache_shapes["cache.layers.1.values"]]
    assert lengths == list(range(10, 26))
    assert set(fixed.cache_shapes["cache.layers.1.values"]) == {(2, 48, 16)}


@pytest.mark.parametrize("length", [8, 20])
def test_prompts_fit_a_static_cache(tmp_path: Path, length: int) -> None:
    config = {"cache_implementation": "static", "max_cache_len": length}
    for case, tensors in record(tiny_qwen3(), tmp_path, generation_config=config):
        assert tensors["input_ids"].shape[1] + tensors["tokens"].shape[1] <= length, case.name


def test_a_window_is_crossed_in_a_prompt_and_while_decoding(tmp_path: Path) -> None:
    window = 16
    torch.manual_seed(0)
    config = Gemma3TextConfig(
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        vocab_size=256,
        sliding_window=window,
        layer_types=["sliding_attention", "full_attention"],
    )
    cases = record(Gemma3ForCausalLM(config).eval(), tmp_path)
    lengths = [(tensors["input_ids"].shape[1], tensors["tokens"].shape[1]) for _, tensors in cases]
    assert any(prompt < window < prompt + steps for prompt, steps in lengths)
    assert any(prompt > window for prompt, _ in lengths)


def test_an_encoder_decoder_starts_from_its_start_token(tmp_path: Path) -> None:
    model = tiny_bart()
    for _, tensors in record(model, tmp_path, multi_token_decode=False):
        start = model.config.decoder_start_token_id
        assert tensors["decoder_input_ids"].tolist() == [[start]] * len(tensors["input_ids"])
        ids = torch.cat([tensors["decoder_input_ids"], tensors["tokens"]], dim=1)
        with torch.no_grad():
            expected = model(
                input_ids=tensors["input_ids"],
                attention_mask=tensors["attention_mask"],
                decoder_input_ids=ids[:, :-1],
            ).logits
        torch.testing.assert_close(tensors["logits"], expected, rtol=0, atol=1e-5)


def test_graphs_that_cannot_generate_have_no_generation(tmp_path: Path) -> None:
    assert record(tiny_qwen3(), tmp_path, multi_token_decode=False, components=("decode",)) == []
