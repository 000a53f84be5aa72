"""Sentence embeddings: a graph's hidden states, pooled as the checkpoint says.

Read are the files that sentence-transformers writes: `modules.json`, the pooling module's
`config.json` and `sentence_bert_config.json`. Without them the mean of all tokens is taken.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model_export.runtime.artifact import Artifact, read_settings
from model_export.runtime.errors import ArtifactError
from model_export.runtime.graph import Array, Graph
from model_export.runtime.prompts import padded
from model_export.runtime.tokenizer import Tokenizer

HIDDEN_STATES = "last_hidden_state"

_BATCH = 32
# Each pooling mode by its flag in the module's config.json, in the order they are joined.
_MODES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
_LARGEST_LENGTH = 1_000_000  # `model_max_length` is 1e30 where a tokenizer has none.


@dataclass(frozen=True)
class Pooling:
    """How hidden states become one vector: modes of sentence-transformers, joined in order."""

    modes: tuple[str, ...] = ("mean",)
    normalize: bool = False


class Embedder:
    """Texts to vectors by one graph; long texts are cut as the checkpoint's makers did."""

    def __init__(self, artifact: Artifact, graph: Graph) -> None:
        """Read the checkpoint's settings.

        Raises ArtifactError for a graph that isn't one of texts, and for a module other than
        pooling and normalisation.
        """
        outputs = [tensor.name for tensor in graph.record.outputs]
        names = [tensor.name for tensor in graph.record.inputs]
        if "input_ids" not in names or HIDDEN_STATES not in outputs:
            raise ArtifactError(
                f"{artifact.folder} makes no embeddings of texts: it takes {', '.join(names)} and "
                f"returns {', '.join(outputs)}. Use `forward`."
            )
        settings = read_settings(artifact.folder / "sentence_bert_config.json")
        self._graph = graph
        self._pooling = read_pooling(artifact.folder)
        self._lowercase = bool(settings.get("do_lower_case"))
        self._tokenizer = Tokenizer(artifact.folder)
        self._length = _max_length(settings, self._tokenizer.config, artifact)
        if self._length is not None:
            self._tokenizer.truncate(self._length)
        self._pad = self._tokenizer.special_id("pad_token") or 0
        self._prefix = _default_prompt(artifact.folder)
        self._batch = _largest_batch(graph)

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors [texts, dimension]."""
        rows = [self._encode(text) for text in texts]
        # Texts of like length together: less padding to compute.
        order = sorted(range(len(rows)), key=lambda index: len(rows[index]))
        vectors: dict[int, NDArray[np.float32]] = {}
        for start in range(0, len(order), self._batch):
            chosen = order[start : start + self._batch]
            vectors.update(zip(chosen, self._embed([rows[i] for i in chosen]), strict=True))
        if not vectors:
            return np.empty((0, 0), np.float32)
        return np.stack([vectors[index] for index in range(len(rows))])

    def _encode(self, text: str) -> list[int]:
        text = self._prefix + text
        return self._tokenizer.encode(text.lower() if self._lowercase else text)

    def _embed(self, rows: list[list[int]]) -> NDArray[np.float32]:
        batch = padded(rows, self._pad, left=False)
        inputs: dict[str, Array] = {
            "input_ids": batch.ids,
            "attention_mask": batch.mask,
            "token_type_ids": np.zeros_like(batch.ids),
            "position_ids": np.broadcast_to(np.arange(batch.ids.shape[1]), batch.ids.shape).copy(),
        }
        taken = {tensor.name for tensor in self._graph.record.inputs}
        hidden = self._graph.run({name: inputs[name] for name in taken & inputs.keys()})
        return pool(hidden[HIDDEN_STATES].astype(np.float32), batch.mask, self._pooling)


def pool(
    hidden: NDArray[np.float32], mask: NDArray[np.int64], pooling: Pooling
) -> NDArray[np.float32]:
    """Vectors [batch, dimension x modes] of `hidden` [batch, tokens, dimension].

    `mask` [batch, tokens] is 0 at padding, which stands on the right. The formulas are those of
    `Pooling._forward_padded` in sentence-transformers 6.2.
    """
    vectors = np.concatenate([_pool(hidden, mask, mode) for mode in pooling.modes], axis=-1)
    if pooling.normalize:
        vectors /= np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)
    return vectors


def _pool(hidden: NDArray[np.float32], mask: NDArray[np.int64], mode: str) -> NDArray[np.float32]:
    real = mask[..., None].astype(np.float32)
    if mode == "cls":
        return hidden[:, 0]
    if mode == "max":
        return np.where(real > 0, hidden, -np.inf).max(axis=1).astype(np.float32)
    if mode == "lasttoken":
        return hidden[np.arange(len(hidden)), mask.sum(axis=1) - 1]
    if mode == "weightedmean":
        real = real * np.arange(1, mask.shape[1] + 1, dtype=np.float32)[:, None]
    total = real.sum(axis=1)
    if mode == "mean_sqrt_len_tokens":
        total = np.sqrt(total)
    return np.asarray((hidden * real).sum(axis=1) / np.maximum(total, 1e-9))


def read_pooling(folder: Path) -> Pooling:
    """What `modules.json` says, and the pooling module's config.

    Raises ArtifactError for a module or mode that isn't known here.
    """
    path = folder / "modules.json"
    if not path.is_file():
        return Pooling()
    modes, normalize = Pooling.modes, False
    for module in json.loads(path.read_text(encoding="utf-8")):
        kind = module["type"].rsplit(".", 1)[-1]
        if kind == "Pooling":
            modes = _modes(folder / module["path"] / "config.json")
        elif kind == "Normalize":
            normalize = True
        elif kind != "Transformer":
            raise ArtifactError(
                f"{path} has a module {kind}, which `embed` can't compute: use `forward`."
            )
    return Pooling(modes, normalize)


def _modes(path: Path) -> tuple[str, ...]:
    settings = read_settings(path)
    stated: Any = settings.get("pooling_mode")  # Since sentence-transformers 5.
    if stated is None:
        stated = [mode for flag, mode in _MODES.items() if settings.get(flag)] or "mean"
    modes = (stated,) if isinstance(stated, str) else tuple(stated)
    for mode in modes:
        if mode not in _MODES.values():
            raise ArtifactError(f"{path} has the pooling mode {mode!r}: use `forward`.")
    return modes


def _max_length(
    settings: dict[str, Any], tokenizer_config: dict[str, Any], artifact: Artifact
) -> int | None:
    """The number of tokens a text is cut to; None if nothing says."""
    if settings.get("max_seq_length"):
        return int(settings["max_seq_length"])
    lengths = (
        tokenizer_config.get("model_max_length"),
        artifact.config.get("max_position_embeddings"),
    )
    known = [int(length) for length in lengths if length and length < _LARGEST_LENGTH]
    return min(known, default=None)


def _default_prompt(folder: Path) -> str:
    """The text that sentence-transformers puts before each text unless told otherwise."""
    settings = read_settings(folder / "config_sentence_transformers.json")
    prompts = settings.get("prompts") or {}
    return str(prompts.get(settings.get("default_prompt_name"), ""))


def _largest_batch(graph: Graph) -> int:
    """As many texts as the graph takes at once, and no more than pays."""
    (ids,) = (tensor for tensor in graph.record.inputs if tensor.name == "input_ids")
    bounds = graph.record.bounds.get(str(ids.shape[0]))
    return min(_BATCH, bounds[1]) if bounds else _BATCH
