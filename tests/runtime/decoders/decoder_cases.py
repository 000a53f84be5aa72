"""Tiny artifacts for the decoders' tests, and greedy loops that must say what `generate` says."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers import MambaConfig, MambaForCausalLM, PreTrainedModel

from exporter.backends.tiny_models import VOCABULARY, export, generation_spec, greedy, left_padded
from model_export.manifest import CheckpointRecord, Manifest
from model_export.runtime.decoder import Decoder, open_decoder
from model_export.runtime.errors import InputError
from runtime.graphs.graph_cases import Component, check_cache_travels, check_inputs_stay

STEPS = 12
CACHE_LENGTH = 32
STATIC = {"cache_implementation": "static", "max_cache_len": CACHE_LENGTH}

IntArray: TypeAlias = "NDArray[np.int64]"


@dataclass(frozen=True)
class Artifact:
    """An exported model: its folder, its manifest, and the model itself."""

    model: PreTrainedModel
    folder: Path
    manifest: Manifest

    def decoder(self) -> Decoder:
        return open_decoder(self.folder, self.manifest)

    def decode(self) -> Component:
        """The decode graph by itself."""
        (record,) = (item for item in self.manifest.components if item.name == "decode")
        return Component(self.model, self.manifest.export_format, self.folder, record)


def make_artifact(
    model: PreTrainedModel,
    export_format: str,
    folder: Path,
    config: Mapping[str, Any] | None = None,
    inputs: Mapping[str, torch.Tensor] | None = None,
    **fields: Any,
) -> Artifact:
    """`model` exported for generation as `fields` of the spec say, dynamic in every dimension."""
    spec = generation_spec(export_format, dict(config or {}), **fields)
    records = export(model, dict(inputs or left_padded(2, 8, 3)), spec, folder)
    (folder / "config.json").write_text(model.config.to_json_string(), encoding="utf-8")
    manifest = Manifest(
        export_format=export_format,
        checkpoint=CheckpointRecord("random", "tiny", ()),
        spec=json.loads(json.dumps(vars(spec))),
        lock={},
        engine={},
        components=tuple(records.values()),
        files=(),
    )
    return Artifact(model, folder, manifest)


def tiny_mamba() -> MambaForCausalLM:
    """A state-space model of two layers; float32, same every time."""
    torch.manual_seed(0)
    config = MambaConfig(
        hidden_size=32, state_size=8, num_hidden_layers=2, vocab_size=VOCABULARY, pad_token_id=0
    )
    model = MambaForCausalLM(config).eval()
    model.generation_config.eos_token_id = None
    return model


def generate(
    decoder: Decoder,
    ids: IntArray,
    mask: IntArray,
    chunks: Sequence[int] | None = None,
    inputs: Mapping[str, NDArray[Any]] | None = None,
) -> IntArray:
    """Greedy tokens [batch, STEPS]: the prompt in pieces of `chunks` tokens, then one by one."""
    batch, length = ids.shape
    decoder.start(batch, inputs or {}, length + STEPS)
    ends = np.cumsum(chunks or [length])
    assert ends[-1] == length
    for start, end in zip([0, *ends[:-1]], ends, strict=True):
        logits = decoder.feed(ids[:, start:end], mask[:, start:end])
    tokens = [logits.argmax(-1)[:, None]]
    while len(tokens) < STEPS:
        logits = decoder.feed(tokens[-1], np.ones_like(tokens[-1]))
        tokens.append(logits.argmax(-1)[:, None])
    return np.concatenate(tokens, axis=1)


def check_generation(artifact: Artifact, padded: bool = True) -> None:
    """One session for prompts of several batches and lengths, whole and in chunks."""
    decoder = artifact.decoder()
    shapes = [(2, 8, 3, None), (1, 3, 0, None), (3, 13, 5, None), (3, 15, 6, (4, 1, 10))]
    for seed, (batch, length, padding, chunks) in enumerate(shapes):
        inputs = left_padded(batch, length, padding if padded else 0, seed)
        expected = greedy(artifact.model, inputs, STEPS).numpy()
        ids, mask = inputs["input_ids"].numpy(), inputs["attention_mask"].numpy()
        np.testing.assert_array_equal(generate(decoder, ids, mask, chunks), expected)


def check_encoder_decoder(artifact: Artifact, lengths: Sequence[int] = (8, 13, 5)) -> None:
    """One session for texts of several lengths, padded on the right."""
    decoder = artifact.decoder()
    for batch, length in zip((2, 3, 1), lengths, strict=True):
        inputs = left_padded(batch, length, 3, length)
        inputs = {name: tensor.flip(1) for name, tensor in inputs.items()}
        with torch.no_grad():
            tokens = artifact.model.generate(**inputs, max_new_tokens=STEPS, do_sample=False)
        first = np.full((batch, 1), artifact.model.generation_config.decoder_start_token_id)
        arrays = {name: tensor.numpy() for name, tensor in inputs.items()}
        actual = generate(decoder, first, np.ones_like(first), inputs=arrays)
        np.testing.assert_array_equal(actual, tokens[:, 1:].numpy())


def check_reorder(artifact: Artifact, padded: bool = True) -> None:
    """Sequences go on from where others were, also as a larger and a smaller batch."""
    decoder = artifact.decoder()
    inputs = left_padded(3, 9, 4 if padded else 0, seed=7)
    expected = greedy(artifact.model, inputs, STEPS).numpy()
    decoder.start(3, {}, 9 + STEPS)
    logits = decoder.feed(inputs["input_ids"].numpy(), inputs["attention_mask"].numpy())
    tokens = logits.argmax(-1)
    of = np.arange(3)
    for step in range(1, STEPS):
        if step in (3, 6, 9):
            rows = {3: np.array([2, 0, 1]), 6: np.array([1, 1, 0, 2]), 9: np.array([3, 0])}[step]
            decoder.reorder(rows)
            tokens, of = tokens[rows], of[rows]
            assert decoder.batch == len(rows)
        logits = decoder.feed(tokens[:, None], np.ones((len(of), 1), np.int64))
        tokens = logits.argmax(-1)
        np.testing.assert_array_equal(tokens, expected[of, step])


def check_cache_shapes(artifact: Artifact, lengths: Sequence[int]) -> None:
    """The positions that layer 0 holds after a prompt of 6 and after two more tokens."""
    decoder = artifact.decoder()
    inputs = left_padded(2, 6, 0)
    decoder.start(2, {}, 8)
    decoder.feed(inputs["input_ids"].numpy(), inputs["attention_mask"].numpy())
    seen = [decoder.cache_shapes()["cache.layers.0.keys"]]
    for _ in range(2):
        decoder.feed(np.ones((2, 1), np.int64), np.ones((2, 1), np.int64))
        seen.append(decoder.cache_shapes()["cache.layers.0.keys"])
    heads = artifact.model.config.num_key_value_heads
    head_dim = artifact.model.config.head_dim
    assert seen == [(2, heads, length, head_dim) for length in lengths]


def check_refusals(artifact: Artifact) -> None:
    """More positions than there is room for, and ids that don't fit the batch."""
    decoder = artifact.decoder()
    ids = np.ones((2, 6), np.int64)
    with pytest.raises(InputError, match="call `start` first"):
        decoder.feed(ids, ids)
    decoder.start(2, {}, 8)
    with pytest.raises(InputError, match=r"must both be \[2, tokens\]"):
        decoder.feed(ids[:1], ids[:1])
    decoder.feed(ids, ids)
    with pytest.raises(InputError, match="6 positions are filled and 6 more"):
        decoder.feed(ids, ids)
    with pytest.raises(InputError, match="takes tokens alone, not pixel_values"):
        decoder.start(2, {"pixel_values": ids}, 8)


def check_growing_cache(artifact: Artifact) -> None:
    """All that holds of a decoder whose cache has as many positions as it saw."""
    check_generation(artifact)
    check_reorder(artifact)
    check_cache_shapes(artifact, (6, 7, 8))
    check_refusals(artifact)
    check_cache_travels(artifact.decode())


def check_static_cache(artifact: Artifact) -> None:
    """All that holds of a decoder whose cache has CACHE_LENGTH positions."""
    check_generation(artifact)
    check_reorder(artifact)
    check_cache_shapes(artifact, (CACHE_LENGTH,) * 3)
    check_refusals(artifact)
    check_inputs_stay(artifact.decode(), CACHE_LENGTH)


def check_unpadded_state_space(artifact: Artifact) -> None:
    """A state-space model generates as it does eagerly, and refuses padding."""
    check_generation(artifact, padded=False)
    decoder = artifact.decoder()
    decoder.start(2, {}, 8)
    ids = np.ones((2, 6), np.int64)
    mask = ids.copy()
    mask[1, :2] = 0
    with pytest.raises(InputError, match="takes no mask"):
        decoder.feed(ids, mask)
