"""What the repository's artifacts must say in an app, on whatever runtime.

The tokens are those of the eager SmolLM2-135M-Instruct (the checkpoint of `targets:smollm2`) in
float32 by transformers 5.24's `generate(do_sample=False)`.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from model_export.runtime import ArtifactError, Model, RuntimeModelError, load

TARGETS = Path("targets")

PARIS = "The capital of France is"
WATER = "Water boils at a temperature of about"
PARIS_TOKENS = (7042, 30, 198, 198, 504, 2988, 314, 42, 216, 34, 32, 33)
PARIS_TEXT = " Paris.\n\nThe answer is: 201"
WATER_TOKENS = (216, 33, 28, 32, 32, 32, 5027, 20590, 28, 527, 314, 563)
# With a repetition penalty of 1.3.
PENALIZED_TEXT = " Paris.\n- The United States has a population slightly higher"
QUESTION = {"role": "user", "content": "What is the capital of France? Answer in one word."}
ANSWER = "The capital of France is Paris."
ANSWER_TOKENS = (504, 3575, 282, 4649, 314, 7042, 30, 2)


def check_slim() -> None:
    """Assert that an app with this resolve has no torch and no transformers."""
    for package in ("torch", "transformers", "onnx", "nncf"):
        assert importlib.util.find_spec(package) is None, package


def check_smollm2(target: str) -> None:
    """Assert that SmolLM2 continues, streams and chats as the eager model does."""
    model = load(TARGETS / target)
    assert model.generates and not model.embeds
    _check_greedy(model)
    _check_streams(model)
    _check_sampling(model)
    answer = model.chat([QUESTION], max_new_tokens=30)
    assert (answer.tokens, answer.text, answer.finish) == (ANSWER_TOKENS, ANSWER, "eos")


def _check_greedy(model: Model) -> None:
    # Of unequal lengths: padded on the left.
    paris, water = model.generate([PARIS, WATER], max_new_tokens=12)
    assert (paris.tokens, paris.text, paris.finish) == (PARIS_TOKENS, PARIS_TEXT, "length")
    assert water.tokens == WATER_TOKENS
    # A new batch of another size finds nothing of the last one.
    ids = model.tokenizer.encode(PARIS)
    assert model.generate(ids, max_new_tokens=12) == [paris]
    assert model.generate(input_ids=[ids], max_new_tokens=12) == [paris]
    (penalized,) = model.generate(PARIS, max_new_tokens=12, repetition_penalty=1.3)
    assert penalized.text == PENALIZED_TEXT


def _check_streams(model: Model) -> None:
    pieces = list(model.stream(PARIS, max_new_tokens=12))
    assert len(pieces) > 5 and "".join(pieces) == PARIS_TEXT
    (stopped,) = model.generate(PARIS, max_new_tokens=12, stop="answer is")
    assert (stopped.text, stopped.finish) == (" Paris.\n\nThe ", "stop")
    assert stopped.tokens == PARIS_TOKENS[:7]
    calls: list[tuple[int, str]] = []
    model.generate([PARIS, WATER], max_new_tokens=3, stream=lambda *call: calls.append(call))
    assert [row for row, _ in calls] == [0, 1] * 3
    first = model.stream(PARIS, max_new_tokens=5)
    next(first)
    assert next(model.stream(WATER, max_new_tokens=5))
    with pytest.raises(RuntimeModelError, match="Another generation"):
        list(first)


def _check_sampling(model: Model) -> None:
    drawn = model.generate([PARIS, WATER], max_new_tokens=8, temperature=1.0, seed=5)
    assert model.generate([PARIS, WATER], max_new_tokens=8, temperature=1.0, seed=5) == drawn
    assert model.generate(PARIS, max_new_tokens=8, temperature=1.0, seed=5) == drawn[:1]
    assert model.generate(PARIS, max_new_tokens=8, temperature=1.0, seed=6) != drawn[:1]


def check_minilm(target: str) -> None:
    """Assert that MiniLM's embeddings have their published cosine, whatever their batch."""
    model = load(TARGETS / target)
    assert model.embeds and not model.generates
    texts = [
        "A man is eating food.",
        # Far more than the 256 tokens that it reads.
        "The new movie is awesome. " * 200,
        "A man is eating a piece of bread.",
    ]
    vectors = model.embed(texts)
    assert vectors.dtype == np.float32 and vectors.shape == (3, 384)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
    # The manual of sentence-transformers has 0.7553 for these two.
    assert vectors[0] @ vectors[2] == pytest.approx(0.7553, abs=1e-3)
    np.testing.assert_allclose(model.embed(texts[0])[0], vectors[0], atol=1e-5)
    # More texts than go in at once, in their own order.
    many = model.embed(texts[:1] * 40 + texts[2:])
    np.testing.assert_allclose(many[[0, 39, 40]], vectors[[0, 0, 2]], atol=1e-5)
    with pytest.raises(ArtifactError, match="wasn't exported for generation"):
        model.generate("Hello")


def check_forward(target: str) -> None:
    """Assert that one graph takes lists, and that its states make the embedding."""
    model = load(TARGETS / target)
    ids = model.tokenizer.encode("A man is eating food.")
    hidden = model.forward(
        input_ids=[ids], attention_mask=[[1] * len(ids)], token_type_ids=[[0] * len(ids)]
    )["last_hidden_state"]
    assert hidden.shape == (1, len(ids), 384)
    mean = hidden[0].mean(axis=0)
    expected = model.embed("A man is eating food.")[0]
    np.testing.assert_allclose(mean / np.linalg.norm(mean), expected, atol=1e-5)


def check_random_qwen3(target: str) -> None:
    """Assert that a checkpoint without tokenizer takes ids, and says what it lacks for texts."""
    model = load(TARGETS / target)
    rows = [[5, 6, 7, 8], [1, 2, 3, 4, 9, 10, 11]]
    both = model.generate(rows, max_new_tokens=6)
    assert [completion.text for completion in both] == [None, None]
    assert [model.generate(row, max_new_tokens=6)[0] for row in rows] == both
    with pytest.raises(ArtifactError, match=r"has no tokenizer\.json: pass token ids"):
        model.generate("Hello")
