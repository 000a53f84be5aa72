"""A merged model computes what peft's own, unmerged one computes; anything else is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaConfig
from transformers import LlamaForCausalLM as Llama

from model_export.exporter.adapters import merge_adapter
from model_export.exporter.errors import ExportError

TOKENS = torch.arange(16).reshape(2, 8)
CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
PROJECTIONS = ["q_proj", "v_proj", "down_proj"]


def _llama(**changes: Any) -> Llama:
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        vocab_size=32,
        attention_bias=True,
        **changes,
    )
    return Llama(config).eval()


def _gpt2(**changes: Any) -> GPT2LMHeadModel:
    torch.manual_seed(0)
    config = GPT2Config(n_embd=16, n_layer=2, n_head=2, vocab_size=32, n_positions=32)
    return GPT2LMHeadModel(config).eval()


def _adapter(model: Any, folder: Path, seed: int = 1, **settings: Any) -> Any:
    """Make an adapter that changes something, save it, and return peft's unmerged model."""
    torch.manual_seed(seed)
    config = peft.LoraConfig(task_type="CAUSAL_LM", **{"r": 4, "lora_alpha": 6, **settings})
    wrapped: Any = peft.get_peft_model(model, config)
    with torch.no_grad():
        for parameter in wrapped.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter) * 0.3)
    wrapped.save_pretrained(folder, save_embedding_layers=False)
    return wrapped.eval()


def _edit(folder: Path, **changes: Any) -> None:
    document = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps({**document, **changes}))


@pytest.mark.parametrize(
    ("make", "settings"),
    [
        (_llama, {"target_modules": PROJECTIONS}),
        (_llama, {"target_modules": PROJECTIONS, "lora_alpha": 12}),
        (_llama, {"target_modules": PROJECTIONS, "use_rslora": True}),
        (_llama, {"target_modules": "all-linear", "use_dora": True}),
        (_llama, {"target_modules": PROJECTIONS, "bias": "all"}),
        (_llama, {"target_modules": PROJECTIONS, "bias": "lora_only"}),
        (_llama, {"target_modules": ["v_proj", "o_proj"], "lora_bias": True}),
        (
            _llama,
            {
                "target_modules": PROJECTIONS,
                "rank_pattern": {"q_proj": 2},
                "alpha_pattern": {"v_proj": 20},
            },
        ),
        (_llama, {"target_modules": PROJECTIONS, "layers_to_transform": [1]}),
        (
            _llama,
            {
                "target_modules": PROJECTIONS,
                "layers_to_transform": [0],
                "layers_pattern": "layers",
            },
        ),
        (_llama, {"target_modules": r".*\.(q|k)_proj", "exclude_modules": r".*\.0\..*k_proj"}),
        (_llama, {"target_modules": PROJECTIONS, "modules_to_save": ["lm_head", "norm"]}),
        (_llama, {"target_modules": ["embed_tokens", "lm_head"]}),
        (_gpt2, {"target_modules": ["c_attn"], "fan_in_fan_out": True}),
    ],
    ids=lambda value: value.__name__ if callable(value) else "-".join(value),
)
def test_merged_is_what_the_adapter_computes(
    tmp_path: Path, make: Callable[[], Any], settings: dict[str, Any]
) -> None:
    base = make()(TOKENS).logits
    expected = _adapter(make(), tmp_path, **settings)(TOKENS).logits
    model = make()
    merged = merge_adapter(model, tmp_path)
    assert type(merged) is type(model)
    assert not any(parameter.requires_grad for parameter in merged.parameters())
    assert not any(isinstance(module, peft.tuners.lora.LoraLayer) for module in merged.modules())
    assert (expected - base).abs().max() > 0.01
    torch.testing.assert_close(merged(TOKENS).logits, expected, atol=2e-6, rtol=0)

    for name in settings.keys() - _INERT:
        _edit(tmp_path, **{name: peft.LoraConfig().to_dict()[name]})
        try:
            ignored = merge_adapter(make(), tmp_path)(TOKENS).logits
        except ExportError:
            continue  # The default asks for other weights.
        assert (ignored - expected).abs().max() > 1e-3, name


# Without them peft finds the modules by itself.
_INERT = {"fan_in_fan_out", "layers_pattern", "target_modules"}


def test_the_base_model_keeps_its_files_and_what_is_not_adapted(tmp_path: Path) -> None:
    model = _llama()
    model.save_pretrained(tmp_path / "base")
    before = (tmp_path / "base/model.safetensors").read_bytes()
    _adapter(_llama(), tmp_path, target_modules=["q_proj"])
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    merged = merge_adapter(loaded, tmp_path)
    assert (tmp_path / "base/model.safetensors").read_bytes() == before
    for name, parameter in merged.named_parameters():
        assert torch.equal(parameter, model.get_parameter(name)) == ("q_proj.weight" not in name)


def test_the_product_is_computed_in_float32_for_half_precision(tmp_path: Path) -> None:
    _adapter(_llama(), tmp_path, target_modules=["q_proj"], lora_alpha=4)
    weights = load_file(tmp_path / WEIGHTS)
    stem = "base_model.model.model.layers.0.self_attn.q_proj"
    delta = weights[f"{stem}.lora_B.weight"] @ weights[f"{stem}.lora_A.weight"]
    model = _llama().to(torch.bfloat16)
    before = model.model.layers[0].self_attn.q_proj.weight.clone()
    merged = merge_adapter(model, tmp_path).model.layers[0].self_attn.q_proj.weight
    assert merged.dtype == torch.bfloat16
    assert torch.equal(merged, (before.float() + delta).to(torch.bfloat16))


def test_another_adapter_is_another_model(tmp_path: Path) -> None:
    outputs = []
    for seed in (1, 2):
        _adapter(_llama(), tmp_path / str(seed), seed, target_modules=PROJECTIONS)
        outputs.append(merge_adapter(_llama(), tmp_path / str(seed))(TOKENS).logits)
    assert not torch.allclose(*outputs, atol=1e-3)


def test_a_tied_head_that_is_adapted_alone_is_refused(tmp_path: Path) -> None:
    tied = {"tie_word_embeddings": True}
    _adapter(_llama(**tied), tmp_path, target_modules=["lm_head"])
    with pytest.raises(ExportError, match=r"which the model ties to `.*embed_tokens.weight`. Put"):
        merge_adapter(_llama(**tied), tmp_path)


def test_a_tied_head_that_was_saved_is_one_of_its_own(tmp_path: Path) -> None:
    tied = {"tie_word_embeddings": True}
    settings: dict[str, Any] = {"target_modules": ["q_proj"], "modules_to_save": ["lm_head"]}
    expected = _adapter(_llama(**tied), tmp_path, **settings)(TOKENS).logits
    merged = merge_adapter(_llama(**tied), tmp_path)
    torch.testing.assert_close(merged(TOKENS).logits, expected, atol=2e-6, rtol=0)
    assert merged.config.tie_word_embeddings is False
    # What follows in an export may tie by the config.
    merged.tie_weights()
    torch.testing.assert_close(merged(TOKENS).logits, expected, atol=2e-6, rtol=0)


def test_a_head_that_was_saved_tied_stays_tied(tmp_path: Path) -> None:
    tied = {"tie_word_embeddings": True}
    _adapter(_llama(**tied), tmp_path, target_modules=["q_proj"], modules_to_save=["lm_head"])
    weights = load_file(tmp_path / WEIGHTS)
    weights["base_model.model.lm_head.weight"] = _llama(**tied).lm_head.weight.detach().clone()
    save_file(weights, tmp_path / WEIGHTS)
    merged = merge_adapter(_llama(**tied), tmp_path)
    assert merged.lm_head.weight is merged.model.embed_tokens.weight


def _drop(name: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        weights = load_file(folder / WEIGHTS)
        del weights[next(key for key in sorted(weights) if name in key)]
        save_file(weights, folder / WEIGHTS)

    return change


def _poison(folder: Path) -> None:
    weights = load_file(folder / WEIGHTS)
    weights[min(weights)].fill_(float("nan"))
    save_file(weights, folder / WEIGHTS)


def _pickle(folder: Path) -> None:
    torch.save(load_file(folder / WEIGHTS), folder / "adapter_model.bin")
    (folder / WEIGHTS).unlink()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda f: (f / CONFIG).unlink(), "`adapter_config.json` is missing. Add what `save_pre"),
        (lambda f: (f / CONFIG).write_text("[]"), "`adapter_config.json` isn't a JSON object."),
        (lambda f: (f / WEIGHTS).unlink(), "`adapter_model.safetensors` is missing. Save the"),
        (_pickle, "`adapter_model.safetensors` is missing, and adapter_model.bin is a pickle."),
        (lambda f: (f / WEIGHTS).write_bytes(b"123"), "`adapter_model.safetensors` is truncated"),
        (lambda f: _edit(f, peft_type="IA3"), "`adapter_config.json: peft_type` is 'IA3', not"),
        (
            lambda f: _edit(f, init_lora_weights="pissa"),
            "`adapter_config.json: init_lora_weights` is 'pissa', which changes the weights of",
        ),
        (
            lambda f: _edit(f, layer_replication=[[0, 2], [1, 2]]),
            "`adapter_config.json: layer_replication` is [[0, 2], [1, 2]], which can't be merged",
        ),
        (lambda f: _edit(f, use_new_trick=True), "`adapter_config.json: use_new_trick` is True"),
        (lambda f: _edit(f, target_modules=["to_q"]), "`adapter` doesn't fit the model (NoM"),
        (
            lambda f: _edit(f, r=8),
            "`adapter` has `base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight` of the "
            "shape [4, 16], where the model takes [8, 16]. Name the model that it was trained on",
        ),
        (_drop("layers.1.self_attn.q_proj.lora_B"), "`adapter` lacks `base_model.model.model.lay"),
        (
            lambda f: _edit(f, target_modules=["q_proj"]),
            "`adapter` has weights that the model doesn't take: `base_model.model.model.layers.0."
            "self_attn.v_proj.lora_A.weight` and 3 more.",
        ),
        (_poison, "`adapter_model.safetensors` can't be merged (ValueError: NaNs detected in"),
    ],
)
def test_refused(tmp_path: Path, spoil: Callable[[Path], Any], message: str) -> None:
    _adapter(_llama(), tmp_path, target_modules=["q_proj", "v_proj"])
    spoil(tmp_path)
    with pytest.raises(ExportError) as caught:
        merge_adapter(_llama(), tmp_path)
    assert message in str(caught.value)


def test_an_adapter_of_a_wider_model_is_refused(tmp_path: Path) -> None:
    config = LlamaConfig(**{**_llama().config.to_dict(), "num_hidden_layers": 3})
    _adapter(Llama(config), tmp_path, target_modules=["q_proj"])
    with pytest.raises(ExportError, match="doesn't take: .*layers.2.self_attn.q_proj.lora_A"):
        merge_adapter(_llama(), tmp_path)


# `argv`: the base model, the adapter, the file of the merged weights.
_MERGE = """\
import sys
from pathlib import Path
from model_export.exporter import hermetic
hermetic.enter(Path(sys.argv[3]).parent / "private")
hermetic.pin_computation()
import torch
from transformers import LlamaForCausalLM
from model_export.exporter.adapters import merge_adapter
model = LlamaForCausalLM.from_pretrained(sys.argv[1])
merged = merge_adapter(model, Path(sys.argv[2]))
torch.save(merged.state_dict(), sys.argv[3])
"""


def test_the_same_bits_on_another_cpu_level_and_thread_count(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=1,
        num_attention_heads=4,
        vocab_size=64,
    )
    Llama(config).save_pretrained(tmp_path / "base")
    _adapter(Llama(config), tmp_path / "adapter", target_modules="all-linear", r=64)
    found = []
    for level, threads in (("default", "1"), ("avx2", "2"), ("avx512", "3")):
        (tmp_path / level).mkdir()
        file = tmp_path / level / "merged.pt"
        subprocess.run(
            [sys.executable, "-c", _MERGE, tmp_path / "base", tmp_path / "adapter", file],
            env={
                "PYTHONPATH": ":".join(sys.path),
                "ATEN_CPU_CAPABILITY": level,
                "OMP_NUM_THREADS": threads,
            },
            check=True,
        )
        found.append(torch.load(file))
    for other in found[1:]:
        assert all(torch.equal(found[0][name], other[name]) for name in found[0])
