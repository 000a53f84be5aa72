"""Which attention a loaded checkpoint computes with, whatever its config names."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    BertForMaskedLM,
    CLIPVisionConfig,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    MambaConfig,
    MambaForCausalLM,
)

from exporter.bert_checkpoint import edit_json, write_bert
from model_export.exporter.checkpoint import (
    load_config,
    load_model,
    open_checkpoint,
)
from model_export.spec import CheckpointOrigin

LOCAL = CheckpointOrigin("local", "somewhere")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bert(tmp_path_factory.mktemp("whole"))


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "checkpoint"))


def test_eager_attention_without_sdpa(tmp_path: Path) -> None:
    config = MambaConfig(vocab_size=8, hidden_size=8, num_hidden_layers=1, state_size=2)
    MambaForCausalLM(config).save_pretrained(tmp_path)
    model = load_model(open_checkpoint(tmp_path, LOCAL, None), "float32")

    assert model.config._attn_implementation == "eager"


@pytest.mark.parametrize("key", ["attn_implementation", "_attn_implementation"])
@pytest.mark.parametrize(
    "named", ["flash_attention_2", "flash_attention_3", "flex_attention", "acme/a-kernel"]
)
def test_attention_that_no_graph_has(folder: Path, whole: Path, key: str, named: str) -> None:
    edit_json(folder, "config.json", **{key: named})
    checkpoint = open_checkpoint(folder, LOCAL, None)
    model = load_model(checkpoint, "float32")

    assert load_config(checkpoint)[1] == {"": named}
    assert model.config._attn_implementation == "sdpa"
    ids = torch.tensor([[2, 5, 3]])
    expected = BertForMaskedLM.from_pretrained(whole)(ids).logits
    assert torch.equal(model(ids).logits, expected)


def test_attention_that_a_graph_can_have_stays(folder: Path) -> None:
    edit_json(folder, "config.json", attn_implementation="eager")
    checkpoint = open_checkpoint(folder, LOCAL, None)

    assert load_config(checkpoint)[1] == {}
    assert load_model(checkpoint, "float32").config._attn_implementation == "eager"


def test_attention_of_all_parts(tmp_path: Path) -> None:
    tiny: dict[str, Any] = {
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
    }
    config = LlavaConfig(
        text_config=LlamaConfig(vocab_size=32, **tiny),
        vision_config=CLIPVisionConfig(image_size=28, patch_size=14, **tiny),
        image_token_index=5,
    )
    LlavaForConditionalGeneration(config).save_pretrained(tmp_path)
    # The engine hands it on to the parts; what those say themselves has no effect (5.24.0).
    named = "flash_attention_2"
    edit_json(tmp_path, "config.json", attn_implementation=named)
    checkpoint = open_checkpoint(tmp_path, LOCAL, None)
    model = load_model(checkpoint, "float32")

    assert load_config(checkpoint)[1] == {"": named, "text_config": named, "vision_config": named}
    assert model.model.vision_tower.config._attn_implementation == "sdpa"
    assert model.model.language_model.config._attn_implementation == "sdpa"
