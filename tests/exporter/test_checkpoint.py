"""Broken and whole checkpoints, made from one tiny model with random weights."""

from __future__ import annotations

import builtins
import json
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    BertConfig,
    BertForMaskedLM,
)

from exporter.bert_checkpoint import edit_json, write_bert
from model_export.exporter.checkpoint import (
    load_model,
    load_tokenizer,
    open_checkpoint,
)
from model_export.exporter.errors import ExportError
from model_export.spec import CheckpointOrigin

LOCAL = CheckpointOrigin("local", "somewhere")
TRUSTED = CheckpointOrigin("local", "somewhere", allow_pickle=True)
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bert(tmp_path_factory.mktemp("whole"))


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "checkpoint"))


def _shard(folder: Path) -> dict[str, str]:
    """Split the weights into two files with an index; returns the index's map."""
    tensors = load_file(folder / WEIGHTS)
    (folder / WEIGHTS).unlink()
    names = sorted(tensors)
    weight_map = {}
    for number, part in enumerate((names[::2], names[1::2]), 1):
        shard = f"model-{number:05}-of-00002.safetensors"
        save_file({name: tensors[name] for name in part}, folder / shard, {"format": "pt"})
        weight_map.update(dict.fromkeys(part, shard))
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return weight_map


def _change_tensors(folder: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    tensors = load_file(folder / WEIGHTS)
    change(tensors)
    save_file(tensors, folder / WEIGHTS, {"format": "pt"})


def _truncate(folder: Path) -> None:
    content = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(content[:-100])


def _remove_shard(folder: Path) -> None:
    _shard(folder)
    (folder / "model-00002-of-00002.safetensors").unlink()


def _misname(target: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        weight_map = _shard(folder)
        weight_map[min(weight_map)] = target
        (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))

    return change


def _promise_tensor(folder: Path) -> None:
    weight_map = _shard(folder)
    weight_map["nowhere"] = "model-00001-of-00002.safetensors"
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


def _pickle(folder: Path) -> None:
    torch.save(load_file(folder / WEIGHTS), folder / "pytorch_model.bin")
    (folder / WEIGHTS).unlink()


def _link_out(folder: Path) -> None:
    shutil.move(folder / WEIGHTS, folder.parent / "elsewhere")
    (folder / WEIGHTS).symlink_to("../elsewhere")


def _dangle(folder: Path) -> None:
    (folder / "merges.txt").symlink_to("gone.txt")


def _rename_weights(folder: Path) -> None:
    (folder / WEIGHTS).rename(folder / "weights.safetensors")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda f: (f / "config.json").unlink(), "`config.json` is missing. Add the config.json"),
        (lambda f: (f / "config.json").write_text("{"), "`config.json` isn't valid JSON (Expect"),
        (lambda f: (f / "config.json").write_text("[]"), "`config.json` isn't a JSON object."),
        (lambda f: (f / "config.json").write_bytes(b"\xff"), "`config.json` isn't UTF-8 text."),
        (
            lambda f: edit_json(f, "config.json", architectures=None),
            '`architectures` is missing or empty. Set `architecture="..."` in the target',
        ),
        (
            lambda f: edit_json(f, "config.json", architectures=["BertForMaskedLMs"]),
            "to one that is, for example BertForMaskedLM.",
        ),
        (
            lambda f: edit_json(
                f, "config.json", architectures=["MyBert"], auto_map={"AutoModel": ""}
            ),
            "names MyBert, which isn't a model class of transformers 5.24.0 (its own code, in",
        ),
        (
            lambda f: edit_json(f, "config.json", model_type="llama"),
            "names BertForMaskedLM, a class for `bert` models, but config.json is of `llama`.",
        ),
        (
            lambda f: edit_json(f, "config.json", quantization_config={"quant_method": "gptq"}),
            "`config.json: quantization_config` says that the weights are quantized",
        ),
        (_truncate, "`model.safetensors` is truncated: "),
        (lambda f: (f / WEIGHTS).write_bytes(b""), "`model.safetensors` is truncated: 0 bytes"),
        (lambda f: (f / WEIGHTS).unlink(), "`model.safetensors` is missing, and no other weights"),
        (_rename_weights, "`weights.safetensors` isn't where the engine looks for weights"),
        (_remove_shard, "`model-00002-of-00002.safetensors` is missing, but model.safetensors.in"),
        (_misname("../outside.safetensors"), "into '../outside.safetensors', which isn't a file"),
        (_misname("/etc/passwd"), "into '/etc/passwd', which isn't a file beside it"),
        (_misname("config.json"), "`config.json` isn't named *.safetensors as its index is"),
        (_promise_tensor, "`model-00001-of-00002.safetensors` lacks the tensor `nowhere` that"),
        (
            lambda f: (_shard(f), (f / INDEX).write_text('{"metadata": {}}')),
            "`model.safetensors.index.json` has no `weight_map`",
        ),
        (
            lambda f: (f / INDEX).write_text(json.dumps({"weight_map": _shard(f)})),
            "`model.safetensors.index.json` has no `metadata` object.",
        ),
        (_pickle, "`pytorch_model.bin` is a pickle, which can run code when it is loaded. Conv"),
        (
            lambda f: (f / WEIGHTS).rename(f / "model.pth"),
            "`model.pth` isn't named pytorch_model.bin, and is a pickle",
        ),
        (_link_out, "`model.safetensors` is a link that leads out of the checkpoint, to ../else"),
        (_dangle, "`merges.txt` is a link to a file that isn't there."),
        (lambda f: (f / "tokenizer.json").write_text("{,}"), "`tokenizer.json` isn't valid JSON"),
        (
            lambda f: (f / "generation_config.json").write_text("3"),
            "`generation_config.json` isn't a JSON object.",
        ),
    ],
)
def test_refused_before_loading(folder: Path, spoil: Callable[[Path], Any], message: str) -> None:
    spoil(folder)

    with pytest.raises(ExportError) as caught:
        open_checkpoint(folder, LOCAL, None)
    assert message in str(caught.value)


def _drop(name: str) -> Callable[[Path], None]:
    def remove(tensors: dict[str, torch.Tensor]) -> None:
        del tensors[name]

    return lambda folder: _change_tensors(folder, remove)


def _add_head(folder: Path) -> None:
    _change_tensors(folder, lambda tensors: tensors.update({"classifier.weight": torch.ones(1)}))


def _bad_pickle(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    (folder / "pytorch_model.bin").write_bytes(b"not a pickle")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (
            _drop("bert.encoder.layer.0.output.dense.weight"),
            "lacks `bert.encoder.layer.0.output.dense.weight` of BertForMaskedLM, which would be",
        ),
        (_add_head, "has weights that BertForMaskedLM doesn't take: `classifier.weight`"),
        (
            lambda f: edit_json(f, "config.json", intermediate_size=24),
            "of the shape [32], where config.json makes it [24].",
        ),
        (
            lambda f: edit_json(f, "config.json", hidden_size="wide"),
            "`config.json` is refused by BertConfig (",
        ),
        (_bad_pickle, "`pytorch_model.bin` can't be loaded as BertForMaskedLM ("),
    ],
)
def test_refused_while_loading(folder: Path, spoil: Callable[[Path], None], message: str) -> None:
    spoil(folder)

    checkpoint = open_checkpoint(folder, TRUSTED, None)
    with pytest.raises(ExportError) as caught:
        load_model(checkpoint, "float32")
    assert message in str(caught.value)


def test_random_head_is_refused(folder: Path) -> None:
    checkpoint = open_checkpoint(folder, LOCAL, "BertForSequenceClassification")

    with pytest.raises(ExportError, match=r"lacks `bert.pooler.*would be drawn at random"):
        load_model(checkpoint, "float32")


def test_unknown_architecture_in_the_target(folder: Path) -> None:
    with pytest.raises(ExportError, match="`architecture` names BertTokenizer, which isn't a mod"):
        open_checkpoint(folder, LOCAL, "BertTokenizer")


def test_load(folder: Path, whole: Path) -> None:
    checkpoint = open_checkpoint(folder, LOCAL, None)
    model = load_model(checkpoint, "float32")

    expected = BertForMaskedLM.from_pretrained(whole).state_dict()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in model.state_dict().items())
    assert checkpoint.weights == (WEIGHTS,)
    assert [file.path for file in checkpoint.files] == sorted(os.listdir(folder))
    assert not model.training
    assert not any(parameter.requires_grad for parameter in model.parameters())
    assert model.config._attn_implementation == "sdpa"
    parameters = dict(model.named_parameters(remove_duplicate=False))
    embeddings = parameters["bert.embeddings.word_embeddings.weight"]
    assert parameters["cls.predictions.decoder.weight"] is embeddings


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_dtype(folder: Path, dtype: str) -> None:
    model = load_model(open_checkpoint(folder, LOCAL, None), dtype)

    assert {parameter.dtype for parameter in model.parameters()} == {getattr(torch, dtype)}


def test_shards(folder: Path, whole: Path) -> None:
    _shard(folder)
    model = load_model(open_checkpoint(folder, LOCAL, None), "float32")

    expected = BertForMaskedLM.from_pretrained(whole).state_dict()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in model.state_dict().items())


def test_pickle_that_the_target_allows(folder: Path, whole: Path) -> None:
    _pickle(folder)
    checkpoint = open_checkpoint(folder, TRUSTED, None)
    model = load_model(checkpoint, "float32")

    assert checkpoint.weights == ("pytorch_model.bin",)
    expected = BertForMaskedLM.from_pretrained(whole).state_dict()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in model.state_dict().items())


def test_a_named_architecture_may_drop_a_head(tmp_path: Path, whole: Path) -> None:
    config = BertConfig.from_pretrained(whole)
    torch.manual_seed(0)
    from transformers import BertForPreTraining

    BertForPreTraining(config).save_pretrained(tmp_path)
    model = load_model(open_checkpoint(tmp_path, LOCAL, "BertModel"), "float32")

    assert type(model).__name__ == "BertModel"


def test_nothing_is_opened_for_writing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An input that is written to corrupts the build's store, whatever its permissions, as root."""
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    for path in folder.iterdir():
        path.chmod(stat.S_IRUSR)
    real_open = builtins.open
    opened: list[str] = []

    def watched(file: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
        if not isinstance(file, int) and Path(file).is_relative_to(folder):
            opened.append(mode)
        return real_open(file, mode, *args, **options)

    monkeypatch.setattr(builtins, "open", watched)
    checkpoint = open_checkpoint(folder, LOCAL, None)
    model = load_model(checkpoint, "float32")
    load_tokenizer(checkpoint)
    # Mapped privately: a change of the weights stays in memory.
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1)

    assert set("".join(opened)) <= set("rbt")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_tokenizer(folder: Path) -> None:
    tokenizer = load_tokenizer(open_checkpoint(folder, LOCAL, None))

    assert tokenizer is not None
    assert tokenizer("hello").input_ids == [2, 5, 3]


def test_no_tokenizer(folder: Path) -> None:
    (folder / "vocab.txt").unlink()
    (folder / "tokenizer_config.json").unlink()

    assert load_tokenizer(open_checkpoint(folder, LOCAL, None)) is None


def test_unreadable_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").write_text('{"version": "1.0", "model": {"type": "Nothing"}}')

    with pytest.raises(ExportError, match=r"`tokenizer\.json` can't be read as a tokenizer"):
        load_tokenizer(open_checkpoint(folder, LOCAL, None))
