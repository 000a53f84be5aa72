"""What the eager models say, and how a decode graph is driven: shared by the runtimes' tests.

Artifacts and checkpoints lie in the sandbox, at the addresses of the targets that make them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeAlias

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers import AutoModel, AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase

from model_export.manifest import MANIFEST_FILE, ComponentRecord, Manifest, record_files

TARGETS = Path("targets")
PROMPT = "The capital of France is"
PROMPTS = [PROMPT, "Water boils at a temperature of about"]
STEPS = 12

# The first two say the same thing, the third is about something else.
SENTENCES = (
    "A man is eating food.",
    "A man is eating a piece of bread.",
    "The new movie is awesome.",
)

IntArray: TypeAlias = "NDArray[np.int64]"


class Step(Protocol):
    """One call of a decode graph that keeps its own cache: logits (batch, tokens, vocabulary)."""

    def __call__(
        self, ids: IntArray, mask: IntArray, positions: IntArray
    ) -> NDArray[np.float32]: ...


def component(target: str, name: str) -> tuple[Path, ComponentRecord]:
    """The folder of a target's artifact, and one component of it; its manifest must be true."""
    folder = TARGETS / target
    manifest = Manifest.from_json((folder / MANIFEST_FILE).read_text(encoding="utf-8"))
    assert manifest.files == record_files(folder)
    (record,) = (record for record in manifest.components if record.name == name)
    return folder, record


def cache_shape(record: ComponentRecord, name: str, batch: int) -> tuple[int, ...]:
    """The shape of an empty cache input: the batch first, every other named size 0."""
    (tensor,) = (tensor for tensor in record.inputs if tensor.name == name)
    return (batch, *(size if isinstance(size, int) else 0 for size in tensor.shape[1:]))


def generate(step: Step, prompt: dict[str, IntArray], steps: int) -> IntArray:
    """Greedy tokens (batch, steps): the prompt in one call, then token by token."""
    ids, mask = prompt["input_ids"], prompt["attention_mask"]
    positions = np.maximum(mask.cumsum(-1) - 1, 0)
    tokens = []
    for _ in range(steps):
        ids = step(ids, mask, positions)[:, -1:].argmax(-1).astype(np.int64)
        tokens.append(ids)
        mask = np.concatenate([mask, np.ones_like(ids)], axis=1)
        positions = positions[:, -1:] + 1
    return np.concatenate(tokens, axis=1)


def tokenize(
    tokenizer: PreTrainedTokenizerBase, texts: list[str], padding_side: str
) -> dict[str, IntArray]:
    """Ids and mask as numpy arrays, (batch, tokens) int64."""
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    encoded = tokenizer(texts, padding=True, padding_side=padding_side, return_tensors="np")
    return {name: np.asarray(array, dtype=np.int64) for name, array in encoded.items()}


def check_generation(
    target: str, checkpoint: str, texts: list[str], make_step: Callable[[int], Step]
) -> str:
    """Assert that a decode graph says what the checkpoint's eager `generate` says.

    The texts go in as one batch, padded on the left, through the tokenizer that travels with the
    artifact. Returns the first continuation.
    """
    tokenizer = AutoTokenizer.from_pretrained(TARGETS / target)
    model = AutoModelForCausalLM.from_pretrained(TARGETS / checkpoint, dtype=torch.float32).eval()
    model.generation_config.eos_token_id = None
    prompt = tokenize(tokenizer, texts, "left")
    with torch.no_grad():
        eager = model.generate(
            **{name: torch.from_numpy(array) for name, array in prompt.items()},
            max_new_tokens=STEPS,
            do_sample=False,
            pad_token_id=tokenizer.pad_token_id,
        )
    expected = eager[:, prompt["input_ids"].shape[1] :].numpy()
    actual = generate(make_step(len(texts)), prompt, STEPS)
    np.testing.assert_array_equal(actual, expected)
    return str(tokenizer.decode(actual[0]))


def check_random_generation(
    target: str, checkpoint: str, make_step: Callable[[int], Step], batch: int
) -> None:
    """The same for a checkpoint without tokenizer: random ids, unequal lengths."""
    model = AutoModelForCausalLM.from_pretrained(TARGETS / checkpoint, dtype=torch.float32).eval()
    model.generation_config.eos_token_id = None
    draw = np.random.default_rng(batch)
    ids = draw.integers(10, model.config.vocab_size, size=(batch, 11))
    mask = np.ones_like(ids)
    mask[1:, :4] = 0
    prompt = {"input_ids": ids, "attention_mask": mask}
    with torch.no_grad():
        eager = model.generate(
            **{name: torch.from_numpy(array) for name, array in prompt.items()},
            max_new_tokens=STEPS,
            do_sample=False,
        )
    np.testing.assert_array_equal(
        generate(make_step(batch), prompt, STEPS), eager[:, ids.shape[1] :].numpy()
    )


def embed(hidden: NDArray[np.float32], mask: IntArray) -> NDArray[np.float32]:
    """Sentence embeddings as MiniLM makes them: the mean of the real tokens, of length 1."""
    weights = mask[..., None].astype(np.float32)
    mean = (hidden * weights).sum(1) / weights.sum(1)
    return np.asarray(mean / np.linalg.norm(mean, axis=1, keepdims=True))


def check_embeddings(
    target: str, forward: Callable[[dict[str, IntArray]], NDArray[np.float32]]
) -> None:
    """Assert that MiniLM's graph gives the eager hidden states, and cosines that make sense."""
    tokenizer = AutoTokenizer.from_pretrained(TARGETS / target)
    inputs = tokenize(tokenizer, list(SENTENCES), "right")
    hidden = forward(inputs)
    model = AutoModel.from_pretrained(TARGETS / "minilm", dtype=torch.float32).eval()
    with torch.no_grad():
        expected = model(**{name: torch.from_numpy(a) for name, a in inputs.items()})
    real = inputs["attention_mask"].astype(bool)
    np.testing.assert_allclose(hidden[real], expected.last_hidden_state.numpy()[real], atol=2e-4)
    vectors = embed(hidden, inputs["attention_mask"])
    # Published for all-MiniLM-L6-v2 by the sentence-transformers manual: 0.7553 for these two.
    assert vectors[0] @ vectors[1] == pytest.approx(0.7553, abs=1e-3)
    assert abs(vectors[0] @ vectors[2]) < 0.1


def check_travelling_files(target: str) -> None:
    """Assert that the tokenizer, its chat template and both configs are in the artifact."""
    folder = TARGETS / target
    tokenizer = AutoTokenizer.from_pretrained(folder)
    chat = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hello"}], tokenize=False, add_generation_prompt=True
    )
    assert "<|im_start|>user\nHello<|im_end|>" in chat
    assert json.loads((folder / "config.json").read_text())["model_type"] == "llama"
    assert (folder / "generation_config.json").is_file()
