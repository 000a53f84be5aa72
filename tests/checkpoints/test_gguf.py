from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import gguf as gguf_format
import numpy as np
import pytest
import torch
from safetensors import safe_open
from transformers import AutoTokenizer, LlamaForCausalLM
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from model_export.checkpoints import gguf
from model_export.exporter.errors import ExportError

_TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
_HIDDEN, _INNER, _HEADS, _GROUPS, _LAYERS = 64, 96, 4, 2, 2
_TOKENS = ["<unk>", "<s>", "</s>", *(chr(ord("a") + index) for index in range(26)), "ab", "Ġ", "Ġa"]

Tensors = dict[str, np.ndarray]


def _tensors() -> Tensors:
    numbers = np.random.default_rng(0)
    shapes = {"token_embd": (len(_TOKENS), _HIDDEN), "output_norm": (_HIDDEN,)}
    for layer in range(_LAYERS):
        for name, shape in {
            "attn_norm": (_HIDDEN,),
            "ffn_norm": (_HIDDEN,),
            "attn_q": (_HIDDEN, _HIDDEN),
            "attn_k": (_HIDDEN * _GROUPS // _HEADS, _HIDDEN),
            "attn_v": (_HIDDEN * _GROUPS // _HEADS, _HIDDEN),
            "attn_output": (_HIDDEN, _HIDDEN),
            "ffn_gate": (_INNER, _HIDDEN),
            "ffn_up": (_INNER, _HIDDEN),
            "ffn_down": (_HIDDEN, _INNER),
        }.items():
            shapes[f"blk.{layer}.{name}"] = shape
    return {
        f"{name}.weight": numbers.standard_normal(shape, np.float32)
        for name, shape in shapes.items()
    }


def _write(
    path: Path, tensors: Tensors, architecture: str = "llama", tokens: list[str] = _TOKENS
) -> Path:
    """A GGUF file as llama.cpp's converter writes it: 8-bit matrices, float32 norms."""
    writer = gguf_format.GGUFWriter(path, architecture)
    writer.add_name("Tiny")
    writer.add_block_count(_LAYERS)
    writer.add_context_length(128)
    writer.add_embedding_length(_HIDDEN)
    writer.add_feed_forward_length(_INNER)
    writer.add_head_count(_HEADS)
    writer.add_head_count_kv(_GROUPS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([3, 3, 3] + [1] * (len(tokens) - 3))
    writer.add_token_merges(["a b", "Ġ a"])
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template(_TEMPLATE)
    kind = gguf_format.GGMLQuantizationType.Q8_0
    for name, values in tensors.items():
        if values.ndim == 1:
            writer.add_tensor(name, values)
        else:
            writer.add_tensor(name, gguf_format.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _write(tmp_path_factory.mktemp("source") / "tiny.gguf", _tensors())


@pytest.fixture(scope="module")
def folder(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("converted")
    gguf.convert(source, target)
    return target


def test_weights_are_those_that_the_engine_reads(source: Path, folder: Path) -> None:
    model = LlamaForCausalLM.from_pretrained(folder)
    direct = load_gguf_checkpoint(str(source), return_tensors=True, model_to_load=model)["tensors"]

    state = model.state_dict()
    assert state.keys() - direct.keys() == {"lm_head.weight"}
    for name, tensor in direct.items():
        assert torch.equal(state[name], tensor), name


def test_tied_embeddings_are_stored_once(folder: Path) -> None:
    with safe_open(folder / "model.safetensors", "pt") as weights:
        names = set(weights.keys())
        kinds = {weights.get_slice(name).get_dtype() for name in names}
    assert "model.embed_tokens.weight" in names
    assert "lm_head.weight" not in names
    assert kinds == {"F32"}
    model = LlamaForCausalLM.from_pretrained(folder)
    assert model.lm_head.weight is model.model.embed_tokens.weight


def test_untied_head(tmp_path: Path) -> None:
    tensors = _tensors()
    tensors["output.weight"] = tensors["token_embd.weight"] + 1
    gguf.convert(_write(tmp_path / "x.gguf", tensors), tmp_path / "out")

    model = LlamaForCausalLM.from_pretrained(tmp_path / "out")
    difference = model.lm_head.weight - model.model.embed_tokens.weight
    assert difference.mean().item() == pytest.approx(1, abs=1e-2)


def test_companions(source: Path, folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert config["dtype"] == "float32"
    assert json.loads((folder / "generation_config.json").read_text())["eos_token_id"] == 2
    direct = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer("ab a").input_ids == direct("ab a").input_ids
    assert tokenizer.chat_template == direct.chat_template == _TEMPLATE


def test_same_bytes_from_another_folder_and_process(
    source: Path, folder: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "an other föld"
    elsewhere.mkdir()
    (elsewhere / "renamed.gguf").write_bytes(source.read_bytes())
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(os.path.abspath(path) for path in sys.path),
        "PYTHONHASHSEED": "5",
        "OMP_NUM_THREADS": "1",
        "ATEN_CPU_CAPABILITY": "default",
    }
    subprocess.run(
        [sys.executable, "-m", gguf.__name__, "renamed.gguf", "out"],
        cwd=elsewhere,
        env=environment,
        check=True,
    )

    def digests(root: Path) -> dict[str, str]:
        return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in root.iterdir()}

    assert digests(elsewhere / "out") == digests(folder)
    for path in folder.iterdir():
        assert str(source.parent).encode() not in path.read_bytes(), path.name


def _without(name: str) -> Callable[[Path], Path]:
    def write(path: Path) -> Path:
        tensors = _tensors()
        del tensors[name]
        return _write(path, tensors)

    return write


def _reshaped(path: Path) -> Path:
    tensors = _tensors()
    tensors["blk.0.ffn_up.weight"] = tensors["blk.0.ffn_up.weight"][:32]
    return _write(path, tensors)


def _truncated(path: Path) -> Path:
    _write(path, _tensors())
    path.write_bytes(path.read_bytes()[:-1000])
    return path


def _not_gguf(path: Path) -> Path:
    path.write_bytes(b"PK\x03\x04")
    return path


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (_not_gguf, r"`x.gguf` isn't a GGUF file: it starts with b'PK\x03\x04'."),
        (_truncated, "`x.gguf` can't be read as GGUF by transformers"),
        (_without("blk.1.attn_q.weight"), "lacks 1 tensors: `model.layers.1.self_attn.q_proj"),
        (_reshaped, "has the shape [32, 64] for `model.layers.0.mlp.up_proj.weight`, where Llama"),
        (lambda path: _write(path, _tensors(), "nosuch"), "architecture nosuch is not supported"),
        (
            lambda path: _write(path, _tensors(), tokens=["?"] * len(_TOKENS)),
            "`x.gguf` has a tokenizer that transformers can't read",
        ),
        (lambda path: path, "`x.gguf` can't be read (No such file or directory)"),
    ],
)
def test_bad_files(tmp_path: Path, write: Callable[[Path], Path], message: str) -> None:
    with pytest.raises(ExportError) as caught:
        gguf.convert(write(tmp_path / "x.gguf"), tmp_path / "out")

    assert message in str(caught.value)
