"""A checkpoint of a tiny BERT, whole, and edits of its JSON files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from transformers import BertConfig, BertForMaskedLM


def write_bert(folder: Path) -> Path:
    """A tiny BERT with random weights, and its tokenizer, in `folder`."""
    config = BertConfig(
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        vocab_size=6,
        tie_word_embeddings=True,
    )
    torch.manual_seed(0)
    BertForMaskedLM(config).save_pretrained(folder)
    (folder / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nhello\n")
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')
    return folder


def edit_json(folder: Path, name: str, **changes: Any) -> None:
    """Change keys of one of its files."""
    document = json.loads((folder / name).read_text())
    document.update(changes)
    (folder / name).write_text(json.dumps(document))
