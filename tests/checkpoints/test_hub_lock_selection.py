"""Which files of a repository are locked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from model_export.checkpoint_ask import CheckpointAsk
from model_export.checkpoints.hub_lock_errors import HubLockError
from model_export.checkpoints.hub_lock_selection import choose_files

# The files of Qwen/Qwen3-0.6B, and what people add to such repositories.
QWEN = (
    ".gitattributes",
    "LICENSE",
    "README.md",
    "config.json",
    "generation_config.json",
    "merges.txt",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.json",
)
QWEN_NEEDED = (
    "config.json",
    "generation_config.json",
    "merges.txt",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.json",
)
CLUTTER = (
    "original/consolidated.00.pth",
    "original/params.json",
    "onnx/model.onnx",
    "onnx/config.json",
    "openvino/openvino_model.bin",
    "model.fp16.safetensors",
    "pytorch_model.bin",
    "pytorch_model.fp16.bin",
    "tf_model.h5",
    "flax_model.msgpack",
    "Qwen3-Q4_K_M.gguf",
    "training_args.bin",
    "trainer_state.json",
    "checkpoint-100/model.safetensors",
    "optimizer.pt",
    "handler.py",
    "images/demo.png",
)
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
INDEX = "model.safetensors.index.json"


def _choose(names: tuple[str, ...], index: object = None, **ask: Any) -> tuple[str, ...]:
    def read_json(path: str) -> Mapping[str, Any]:
        assert path.endswith(".index.json")
        return index if isinstance(index, dict) else {"weight_map": dict(enumerate(SHARDS))}

    return choose_files(CheckpointAsk("Qwen/Qwen3-0.6B", **ask), names, read_json)


def _refusal(names: tuple[str, ...], index: object = None, **ask: Any) -> str:
    with pytest.raises(HubLockError) as caught:
        _choose(names, index, **ask)
    message = str(caught.value)
    assert message.startswith("Qwen/Qwen3-0.6B@main: ") and message.isprintable()
    return message


def test_takes_what_an_export_needs() -> None:
    assert _choose(QWEN) == QWEN_NEEDED


def test_takes_one_variant_in_one_format() -> None:
    assert _choose((*QWEN, *CLUTTER)) == QWEN_NEEDED
    # Allowing pickles doesn't mean preferring them.
    assert _choose((*QWEN, *CLUTTER), pickle=True) == QWEN_NEEDED


def test_takes_shards_with_their_index() -> None:
    names = ("config.json", INDEX, *SHARDS, "model-00003-of-00003.safetensors")
    assert _choose(names) == tuple(sorted(("config.json", INDEX, *SHARDS)))
    assert "names 'model-00002-of-00002.safetensors', which the repository doesn't have" in (
        _refusal(names[:3])
    )
    assert "Change `exclude`" in _refusal(names, exclude=("*-00001-*",))


@pytest.mark.parametrize(
    "index",
    [
        {"metadata": {}},
        {"weight_map": []},
        {"weight_map": {}},
        {"weight_map": {"a": "../evil"}},
        {"weight_map": {"a": "/etc/passwd"}},
        {"weight_map": {"a": None}},
        {"weight_map": {"a": ["model.safetensors"]}},
    ],
    ids=json.dumps,
)
def test_refuses_index(index: object) -> None:
    assert INDEX in _refusal(("config.json", INDEX, *SHARDS), index)


def test_takes_pickles_only_where_they_are_allowed_and_there_is_nothing_else() -> None:
    names = ("config.json", "pytorch_model.bin", "tf_model.h5")
    assert _choose(names, pickle=True) == ("config.json", "pytorch_model.bin")
    assert "`allow_pickle=True`" in _refusal(names)
    assert "`allow_pickle=True`" in _refusal(("config.json", "pytorch_model.bin.index.json"))
    assert "`allow_pickle=True`" in _refusal((*QWEN, *CLUTTER), include=("original/*",))


def test_takes_code_only_where_it_is_trusted() -> None:
    names = (*QWEN, "modeling_own.py", "own/layers.py", "onnx/quantize.py")
    assert _choose(names) == QWEN_NEEDED
    trusted = _choose(names, remote_code=True)
    assert set(trusted) - set(QWEN_NEEDED) == {"modeling_own.py", "own/layers.py"}
    assert "`trust_remote_code=True`" in _refusal(names, include=("*.py",))


def test_takes_tokenizers_processors_templates_and_a_recipe() -> None:
    more = (
        "additional_chat_templates/rag.jinja",
        "chat_template.jinja",
        "export_config.json",
        "preprocessor_config.json",
        "processor_config.json",
        "sentencepiece.bpe.model",
        "source.spm",
        "spiece.model",
        "video_preprocessor_config.json",
        "1_Pooling/config.json",
        "modules.json",
    )
    assert set(_choose((*QWEN, *more))) == {*QWEN_NEEDED, *more}


def test_takes_a_gguf_file_alone_with_its_parts() -> None:
    names = ("README.md", "config.json", "a-Q4_0.gguf", "a-Q8_0.gguf")
    assert _choose(names, gguf_file="a-Q4_0.gguf") == ("a-Q4_0.gguf",)
    both = _choose(names, gguf_file="a-Q4_0.gguf", include=("config.json",))
    assert both == ("a-Q4_0.gguf", "config.json")
    parts = ("q/b-00001-of-00002.gguf", "q/b-00002-of-00002.gguf")
    assert _choose(parts, gguf_file=parts[0]) == parts
    assert "'q/b-00002-of-00002.gguf' is missing" in _refusal(parts[:1], gguf_file=parts[0])
    assert "Did you mean 'a-Q4_0.gguf'?" in _refusal(names, gguf_file="a-Q4_1.gguf")
    assert "remove `gguf_file`" in _refusal(QWEN, gguf_file="a.gguf")
    assert "Set `gguf_file` to one of 'a-Q4_0.gguf', 'a-Q8_0.gguf'" in _refusal(names)


def test_takes_two_files_of_an_adapter() -> None:
    names = ("README.md", "adapter_config.json", "adapter_model.safetensors", "tokenizer.json")
    assert _choose(names, adapter=True) == names[1:3]
    for missing in names[1:3]:
        with pytest.raises(HubLockError, match=f"no adapter in safetensors: it has no {missing}"):
            _choose(tuple(name for name in names if name != missing), adapter=True)


def test_include_adds_and_exclude_hides() -> None:
    assert "onnx/model.onnx" in _choose((*QWEN, *CLUTTER), include=("onnx/*",))
    assert "vocab.json" not in _choose(QWEN, exclude=("vocab.*",))
    assert "which no file matches" in _refusal(QWEN, include=("*.spm",))
    # What is hidden counts neither as weights nor as a match.
    names = (*QWEN, "pytorch_model.bin")
    chosen = _choose(names, exclude=("*.safetensors",), pickle=True)
    assert "pytorch_model.bin" in chosen and "model.safetensors" not in chosen
    assert "which no file matches" in _refusal(QWEN, include=("LICENSE",), exclude=("LIC*",))


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("model_index.json", "unet/config.json"), "a pipeline of diffusers"),
        (("adapter_config.json", "adapter_model.safetensors"), "an adapter, not a model"),
        (("config.json", "adapter_config.json"), "an adapter, not a model"),
        (("README.md", "model.safetensors"), "it has no config.json"),
        (("config.json",), "it has no weights"),
        (("config.json", "tf_model.h5"), "another framework only"),
        (("config.json", "consolidated.safetensors"), "'consolidated.safetensors', which isn't"),
        (("config.json", "model.fp16.safetensors"), "'model.fp16.safetensors', which isn't"),
        (("a.gguf",), "in GGUF only"),
        ((), "Its files are none"),
    ],
)
def test_says_why_a_repository_is_unsuitable(names: tuple[str, ...], expected: str) -> None:
    assert expected in _refusal(names)
