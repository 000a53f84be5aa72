"""Which files of a repository an export needs. Nothing here asks the hub: names go in and out."""

from __future__ import annotations

import difflib
import fnmatch
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from model_export.checkpoint_ask import CheckpointAsk
from model_export.checkpoint_lock import needs_pickle, needs_remote_code
from model_export.checkpoint_paths import shown
from model_export.checkpoints.hub_lock_errors import (
    HubLockError,
    UnsuitableCheckpointError,
    wrong_answer,
)
from model_export.spec import ADAPTER_CONFIG, ADAPTER_WEIGHTS

CONFIG_FILE = "config.json"
SAFETENSORS = "model.safetensors"
PICKLE = "pytorch_model.bin"
INDEX_SUFFIX = ".index.json"

# Beside the weights: what the exporter reads, and what travels with an artifact
# (`model_export.exporter.companions`). Vocabularies by the names of transformers 5.24's tokenizers.
_NEEDED = (
    CONFIG_FILE,
    "generation_config.json",
    "export_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "bpe.codes",
    "normalizer.json",
    "tekken.json",
    "*.model",
    "*.spm",
    "preprocessor_config.json",
    "processor_config.json",
    "video_preprocessor_config.json",
    "chat_template.json",
    "chat_template.jinja",
    "additional_chat_templates/*.jinja",
    # sentence-transformers: what is done with the hidden states.
    "[0-9]*_*/config.json",
    "config_sentence_transformers.json",
    "modules.json",
    "sentence_bert_config.json",
)
# Folders with copies in other formats, whose code isn't the model's.
_COPIES = ("original/", "onnx/", "openvino/", "coreml/")
_GGUF_PART = re.compile(r"(?P<stem>.+)-\d{5}-of-(?P<count>\d{5})\.gguf")
_OTHER_FRAMEWORKS = ("tf_model.h5", "flax_model.msgpack", "rust_model.ot", "model.ckpt.index")
_AS_ADAPTER = "Write it as `adapter`, and the model that it was trained on as `model`"

ReadIndex = Callable[[str], Mapping[str, Any]]


def choose_files(ask: CheckpointAsk, names: Iterable[str], read_json: ReadIndex) -> tuple[str, ...]:
    """The files that an export of what `ask` asks for needs, sorted.

    `names` are all files of the repository; `read_json` gives the object in one of them. Weights
    are `model.safetensors`, else the shards that its index names, else the same of
    `pytorch_model.bin` where pickles are allowed; or `gguf_file` alone, with all of its parts. One
    variant: `model.fp16.safetensors` and the like are left out, as is everything in folders. The
    repository's own code comes along where it is trusted.

    Raises UnsuitableCheckpointError, and WrongAnswerError for an index that can't be read.
    """
    every = frozenset(names)
    visible = frozenset(name for name in every if not _matches_any(name, ask.exclude))
    if ask.adapter:
        return _adapter(ask, visible)
    if ask.gguf_file is not None:
        chosen = set(_gguf_parts(ask, visible))
    else:
        if CONFIG_FILE not in visible:
            raise _no_config(ask, visible)
        chosen = {*_weights(ask, visible, read_json)}
        chosen.update(name for name in visible if any(_fits(name, like) for like in _NEEDED))
        if ask.remote_code:
            chosen.update(
                name for name in visible if name.endswith(".py") and not name.startswith(_COPIES)
            )
    for pattern in ask.include:
        added = {name for name in visible if fnmatch.fnmatchcase(name, pattern)}
        if not added:
            raise UnsuitableCheckpointError(
                ask.key,
                f"`include` has {shown(pattern)}, which no file matches",
                f"Its files are {_listed(visible)}",
            )
        chosen |= added
    for name in sorted(chosen):
        if needs_pickle(name) and not ask.pickle:
            raise _pickle(ask, name)
        if needs_remote_code(name) and not ask.remote_code:
            raise UnsuitableCheckpointError(
                ask.key,
                f"{shown(name)} is code of the repository",
                "Set `trust_remote_code=True` if you trust it, or leave it out",
            )
    return tuple(sorted(chosen))


def _adapter(ask: CheckpointAsk, names: frozenset[str]) -> tuple[str, ...]:
    """The two files of an adapter that a merge reads."""
    for name in (ADAPTER_CONFIG, ADAPTER_WEIGHTS):
        if name not in names:
            raise UnsuitableCheckpointError(
                ask.key,
                f"it is no adapter in safetensors: it has no {name}",
                f"Its files are {_listed(names)}",
            )
    return (ADAPTER_CONFIG, ADAPTER_WEIGHTS)


def _weights(ask: CheckpointAsk, names: frozenset[str], read_json: ReadIndex) -> list[str]:
    """The weights that the engine loads, in its order of preference; with their index."""
    for single in (SAFETENSORS, PICKLE):
        if single == PICKLE and not ask.pickle:
            break
        if single in names:
            return [single]
        index = f"{single}{INDEX_SUFFIX}"
        if index in names:
            return [index, *_shards(ask, index, names, read_json(index))]
    for name in (PICKLE, f"{PICKLE}{INDEX_SUFFIX}"):
        if name in names:
            raise _pickle(ask, name)
    raise _no_weights(ask, names)


def _shards(
    ask: CheckpointAsk, index: str, names: frozenset[str], document: Mapping[str, Any]
) -> list[str]:
    weight_map = document.get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise wrong_answer(ask.key, f"{index} has no `weight_map`")
    shards: set[str] = set()
    for shard in weight_map.values():
        if not isinstance(shard, str) or "/" in shard:
            raise UnsuitableCheckpointError(
                ask.key,
                f"{index} names {shown(shard)}, which isn't a file beside it",
                "Choose another revision, or tell its owner",
            )
        shards.add(shard)
    for shard in sorted(shards):
        if shard not in names:
            hidden = _matches_any(shard, ask.exclude)
            raise UnsuitableCheckpointError(
                ask.key,
                f"{index} names {shown(shard)}, which "
                + ("`exclude` hides" if hidden else "the repository doesn't have"),
                "Change `exclude`" if hidden else "Choose another revision, or tell its owner",
            )
    return sorted(shards)


def _gguf_parts(ask: CheckpointAsk, names: frozenset[str]) -> list[str]:
    wanted = ask.gguf_file or ""
    if wanted not in names:
        known = sorted(name for name in names if name.endswith(".gguf"))
        near = difflib.get_close_matches(wanted, known, n=1, cutoff=0.0)
        raise UnsuitableCheckpointError(
            ask.key,
            f"`gguf_file` is {shown(wanted)}, which the repository doesn't have",
            f"Did you mean {shown(near[0])}? It has {_listed(known)}"
            if near
            else "It has no GGUF file at all: remove `gguf_file`",
        )
    part = _GGUF_PART.fullmatch(wanted)
    if part is None:
        return [wanted]
    count = int(part["count"])
    parts = [f"{part['stem']}-{at:05}-of-{part['count']}.gguf" for at in range(1, count + 1)]
    for name in parts:
        if name not in names:
            raise UnsuitableCheckpointError(
                ask.key,
                f"{shown(wanted)} is one of {count} parts, and {shown(name)} is missing",
                "Choose another revision, or tell its owner",
            )
    return parts


def _no_config(ask: CheckpointAsk, names: frozenset[str]) -> HubLockError:
    if "model_index.json" in names:
        problem, remedy = "it is a pipeline of diffusers", "Name the repository of one model of it"
    elif ADAPTER_CONFIG in names:
        problem, remedy = "it is an adapter, not a model", _AS_ADAPTER
    elif any(name.endswith(".gguf") for name in names):
        return _only_gguf(ask, names)
    else:
        problem, remedy = f"it has no {CONFIG_FILE}", f"Its files are {_listed(names)}"
    return UnsuitableCheckpointError(ask.key, problem, remedy)


def _no_weights(ask: CheckpointAsk, names: frozenset[str]) -> HubLockError:
    top = sorted(name for name in names if "/" not in name)
    others = [name for name in top if name.endswith(".safetensors")]
    if ADAPTER_CONFIG in names:
        problem, remedy = "it is an adapter, not a model", _AS_ADAPTER
    elif others:
        problem = f"it has {_listed(others)}, which isn't where the engine looks for weights"
        remedy = f"Choose a repository that has {SAFETENSORS}, or its shards with an index"
    elif any(name.endswith(".gguf") for name in names):
        return _only_gguf(ask, names)
    elif any(name in names for name in _OTHER_FRAMEWORKS):
        problem = "it has weights for another framework only"
        remedy = f"Convert it to {SAFETENSORS}, or choose another revision"
    else:
        problem, remedy = "it has no weights", f"Its files are {_listed(names)}"
    return UnsuitableCheckpointError(ask.key, problem, remedy)


def _only_gguf(ask: CheckpointAsk, names: Iterable[str]) -> HubLockError:
    known = sorted(name for name in names if name.endswith(".gguf"))
    return UnsuitableCheckpointError(
        ask.key,
        "its weights are in GGUF only",
        f"Set `gguf_file` to one of {_listed(known)}",
    )


def _pickle(ask: CheckpointAsk, name: str) -> HubLockError:
    return UnsuitableCheckpointError(
        ask.key,
        f"{shown(name)} is a pickle, which can run code when it is read"
        if name != PICKLE and not name.endswith(INDEX_SUFFIX)
        else f"its weights are pickles only ({name}), which can run code when they are read",
        "Choose a revision with safetensors (`refs/pr/N` often has them), or set "
        "`allow_pickle=True` if you trust it",
    )


def _matches_any(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _fits(name: str, pattern: str) -> bool:
    """Whether a path matches a pattern part by part: `*` doesn't cross a '/'."""
    parts, likes = name.split("/"), pattern.split("/")
    return len(parts) == len(likes) and all(map(fnmatch.fnmatchcase, parts, likes))


def _listed(names: Iterable[str]) -> str:
    known = sorted(names)
    listed = ", ".join(shown(name) for name in known[:8]) or "none"
    return listed + (f" and {len(known) - 8} more" if len(known) > 8 else "")
