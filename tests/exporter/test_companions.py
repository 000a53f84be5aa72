from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer, BertConfig, BertModel, GPT2Config, GPT2LMHeadModel

from model_export.exporter.checkpoint import copy_companions, open_checkpoint
from model_export.manifest import record_files
from model_export.spec import CheckpointOrigin

LOCAL = CheckpointOrigin("local", "somewhere")
TEMPLATE = "{% for message in messages %}{{ message['content'] }}é{% endfor %}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "checkpoint"
    config = BertConfig(
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        vocab_size=6,
    )
    BertModel(config).save_pretrained(folder)
    (folder / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nhello\n")
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')
    return folder


def _copy(folder: Path, architecture: str | None = None) -> Path:
    target = folder.parent / "artifact"
    copy_companions(open_checkpoint(folder, LOCAL, architecture), target)
    return target


def _object(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return document


def test_files_are_copied_byte_for_byte(folder: Path) -> None:
    (folder / "preprocessor_config.json").write_text('{ "size":1}')
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling/config.json").write_text("{}")
    (folder / "README.md").write_text("# Model")
    (folder / "training_args.bin").write_bytes(b"x")
    artifact = _copy(folder)

    names = [file.path for file in record_files(artifact)]
    assert names == [
        "1_Pooling/config.json",
        "config.json",
        "preprocessor_config.json",
        "tokenizer_config.json",
        "vocab.txt",
    ]
    for name in names:
        assert (artifact / name).read_bytes() == (folder / name).read_bytes()


@pytest.mark.parametrize("given", ["file", "inlined", "both"])
def test_chat_template_is_there_both_ways(folder: Path, given: str) -> None:
    settings = {"tokenizer_class": "BertTokenizer"}
    if given != "inlined":
        (folder / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")
    if given != "file":
        settings["chat_template"] = TEMPLATE if given == "inlined" else "old"
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    artifact = _copy(folder)

    assert (artifact / "chat_template.jinja").read_text(encoding="utf-8") == TEMPLATE
    assert _object(artifact / "tokenizer_config.json")["chat_template"] == TEMPLATE
    # The engine itself reads the same one from the checkpoint.
    assert AutoTokenizer.from_pretrained(folder).chat_template == TEMPLATE
    assert AutoTokenizer.from_pretrained(artifact).chat_template == TEMPLATE


def test_paths_of_another_machine_are_left_out(folder: Path) -> None:
    for name, key in (("config.json", "_name_or_path"), ("tokenizer_config.json", "name_or_path")):
        document = {**_object(folder / name), key: "/home/somebody/model"}
        (folder / name).write_text(json.dumps(document))
    artifact = _copy(folder)

    for file in record_files(artifact):
        assert b"somebody" not in (artifact / file.path).read_bytes()
    assert _object(artifact / "config.json")["hidden_size"] == 16


def test_config_names_what_was_exported(folder: Path) -> None:
    artifact = _copy(folder, "BertLMHeadModel")

    assert _object(artifact / "config.json")["architectures"] == ["BertLMHeadModel"]


def test_generation_config_is_made_where_it_is_missing(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    config = GPT2Config(n_embd=8, n_layer=1, n_head=1, vocab_size=6, eos_token_id=5)
    GPT2LMHeadModel(config).save_pretrained(folder)
    (folder / "generation_config.json").unlink()

    assert _object(_copy(folder) / "generation_config.json")["eos_token_id"] == 5
    (folder / "generation_config.json").write_text('{"eos_token_id": 3}')
    assert (_copy(folder) / "generation_config.json").read_text() == '{"eos_token_id": 3}'


def test_no_generation_config_for_an_encoder(folder: Path) -> None:
    assert not (_copy(folder) / "generation_config.json").exists()
