"""The perplexity of an artifact is that of the eager model."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from support.quality import measure, perplexity
from support.quality_record import PERPLEXITY
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from model_export.exporter.pipeline import run_export
from model_export.plugin.spec_settings import spec_of
from model_export.spec import CheckpointOrigin, ExportRequest, Toolchain

LINES = ["the quick brown fox jumps over the lazy dog", "and the dog sleeps on"]


@pytest.fixture(scope="module")
def model() -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=512,
        max_position_embeddings=512,
        # Far from a uniform guess, so that each token counts.
        initializer_range=0.5,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )
    return LlamaForCausalLM(config).eval()


@pytest.fixture(scope="module")
def artifact(model: LlamaForCausalLM, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("quality")
    model.save_pretrained(folder / "checkpoint")
    text = Path("support/quality/text.txt").read_text(encoding="utf-8")
    words = sorted({*" ".join(LINES).split(), *text.split()})
    vocabulary = {word: number for number, word in enumerate(["[PAD]", "[UNK]", "[EOS]", *words])}
    assert len(vocabulary) <= model.config.vocab_size
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(
        tokenizer_object=backend, unk_token="[UNK]", pad_token="[PAD]", eos_token="[EOS]"
    ).save_pretrained(folder / "checkpoint")
    settings = {
        "config": {"export_format": "onnx", "dynamic": True},
        "for_generation": True,
        "multi_token_decode": True,
    }
    request = ExportRequest(
        spec_of(settings), CheckpointOrigin("local", "tiny"), Toolchain("onnx", "0" * 64)
    )
    run_export(request, folder / "checkpoint", folder / "artifact", folder / "probe")
    return folder / "artifact"


def _eager(model: LlamaForCausalLM, artifact: Path, text: str) -> float:
    tokenizer = PreTrainedTokenizerFast.from_pretrained(artifact)
    ids = torch.tensor([tokenizer(text)["input_ids"][:256]])
    with torch.no_grad():
        logits = model(ids).logits[0, :-1].double()
    return math.exp(torch.nn.functional.cross_entropy(logits, ids[0, 1:]).item())


def test_perplexity_is_the_eager_models(model: LlamaForCausalLM, artifact: Path) -> None:
    expected = _eager(model, artifact, "\n".join(LINES))
    assert perplexity(artifact, LINES) == pytest.approx(expected, rel=1e-4)
    # Neither a constant nor that of the words in any order.
    assert perplexity(artifact, LINES[::-1]) != pytest.approx(expected, rel=1e-2)


def test_an_artifact_that_generates_is_measured_so(model: LlamaForCausalLM, artifact: Path) -> None:
    quality = measure(artifact)
    assert (quality.kind, quality.export_format, quality.quantizer) == (PERPLEXITY, "onnx", None)
    text = Path("support/quality/text.txt").read_text(encoding="utf-8")
    assert quality.value == pytest.approx(_eager(model, artifact, text), rel=1e-4)
    assert (
        quality.size
        == sum(file.stat().st_size for file in artifact.rglob("*.*"))
        - (artifact / "manifest.json").stat().st_size
    )
