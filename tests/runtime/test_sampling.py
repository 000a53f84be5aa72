"""The distributions that tokens are drawn from, against transformers' own processors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers.generation import (
    LogitsProcessorList,
    RepetitionPenaltyLogitsProcessor,
    SuppressTokensLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from model_export.runtime.errors import InputError
from model_export.runtime.sampling import Sampler, Sampling, TokenRules

BATCH, VOCABULARY = 3, 97


def _logits(seed: int = 0) -> NDArray[np.float32]:
    draw = np.random.default_rng(seed)
    return (draw.standard_normal((BATCH, VOCABULARY)) * 3).astype(np.float32)


def _expected(
    logits: NDArray[np.float32],
    seen: NDArray[np.int64],
    *,
    suppressed: tuple[int, ...] = (),
    **sampling: Any,
) -> NDArray[np.float32]:
    """Probabilities by transformers, in the order of its `_get_logits_processor`."""
    processors = LogitsProcessorList()
    if "repetition_penalty" in sampling:
        processors.append(RepetitionPenaltyLogitsProcessor(sampling["repetition_penalty"]))
    if suppressed:
        processors.append(SuppressTokensLogitsProcessor(list(suppressed), device="cpu"))
    processors.append(TemperatureLogitsWarper(sampling["temperature"]))
    if "top_k" in sampling:
        processors.append(TopKLogitsWarper(sampling["top_k"]))
    if "top_p" in sampling:
        processors.append(TopPLogitsWarper(sampling["top_p"]))
    scores = processors(torch.from_numpy(seen), torch.from_numpy(logits.copy()))
    return np.asarray(scores.softmax(-1).numpy())


def _softmax(scores: NDArray[np.float32]) -> NDArray[np.float64]:
    powers = np.exp(scores.astype(np.float64) - scores.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True))


@pytest.mark.parametrize(
    "sampling",
    [
        {"temperature": 1.0},
        {"temperature": 0.3},
        {"temperature": 2.5},
        {"temperature": 1.0, "top_k": 1},
        {"temperature": 0.7, "top_k": 12},
        {"temperature": 1.0, "top_k": 1000},
        {"temperature": 1.0, "top_p": 0.9},
        {"temperature": 1.0, "top_p": 0.01},
        {"temperature": 1.7, "top_p": 0.999},
        {"temperature": 0.8, "top_k": 20, "top_p": 0.6},
        {"temperature": 1.0, "repetition_penalty": 1.3},
        {"temperature": 1.0, "repetition_penalty": 0.8},
        {"temperature": 0.6, "top_k": 30, "top_p": 0.95, "repetition_penalty": 1.2},
    ],
    ids=str,
)
def test_distributions_are_those_of_transformers(sampling: dict[str, Any]) -> None:
    logits = _logits()
    # A token that occurs twice is penalised once.
    seen = np.array([[5, 5, 7, 9], [1, 2, 3, 4], [96, 0, 50, 51]])
    sampler = Sampler(BATCH, VOCABULARY, Sampling(**sampling), seed=0)
    for row in range(BATCH):
        sampler.see(row, seen[row])
    actual = _softmax(sampler.scores(logits))
    expected = _expected(logits, seen, **sampling)
    np.testing.assert_array_equal(actual > 0, expected > 0)
    np.testing.assert_allclose(actual, expected, atol=1e-6)


def test_chosen_tokens_count_as_occurred() -> None:
    sampling: dict[str, Any] = {"temperature": 1.0, "repetition_penalty": 1.5}
    sampler = Sampler(BATCH, VOCABULARY, Sampling(**sampling), seed=3)
    chosen = np.stack([sampler.choose(_logits(step)).copy() for step in range(4)], axis=1)
    actual = _softmax(sampler.scores(_logits(9)))
    np.testing.assert_allclose(actual, _expected(_logits(9), chosen, **sampling), atol=1e-6)


def test_suppressed_tokens_never_come() -> None:
    rules = TokenRules(suppressed=(3, 4), suppressed_first=(8,))
    sampler = Sampler(BATCH, VOCABULARY, Sampling(temperature=1.0), 0, rules)
    seen = np.zeros((BATCH, 1), np.int64)
    for suppressed in [(3, 4, 8), (3, 4)]:
        expected = _expected(_logits(), seen, suppressed=suppressed, temperature=1.0)
        np.testing.assert_allclose(_softmax(sampler.scores(_logits())), expected, atol=1e-6)
        sampler.choose(_logits())


def test_a_forced_first_token_comes_first_and_only_then() -> None:
    sampler = Sampler(BATCH, VOCABULARY, Sampling(), rules=TokenRules(forced_first=42))
    logits = _logits()
    assert sampler.choose(logits).tolist() == [42] * BATCH
    np.testing.assert_array_equal(sampler.choose(logits), logits.argmax(-1))


def test_temperature_0_takes_the_most_likely_and_leaves_the_logits_alone() -> None:
    logits = _logits()
    before = logits.copy()
    sampler = Sampler(BATCH, VOCABULARY, Sampling(repetition_penalty=50.0))
    first = sampler.choose(logits).copy()
    np.testing.assert_array_equal(first, before.argmax(-1))
    assert not (sampler.choose(logits) == first).any()
    np.testing.assert_array_equal(logits, before)


def test_draws_follow_the_distribution() -> None:
    """A chi-squared test with 4 degrees of freedom: 23.5 is exceeded once in 10,000 times."""
    logits = np.log(np.array([[0.5, 0.25, 0.15, 0.07, 0.03]], np.float32))
    sampler = Sampler(1, 5, Sampling(temperature=1.0), seed=0)
    draws = 4000
    counts = np.bincount([int(sampler.choose(logits)[0]) for _ in range(draws)], minlength=5)
    expected = np.exp(logits[0]) * draws
    assert ((counts - expected) ** 2 / expected).sum() < 23.5


def _draws(batch: int, seed: int | list[int] | None, rows: NDArray[np.float32]) -> list[list[int]]:
    sampler = Sampler(batch, rows.shape[-1], Sampling(temperature=1.0), seed)
    return np.stack([sampler.choose(rows).copy() for _ in range(20)], axis=1).tolist()


def test_a_seed_gives_a_sequence_the_same_tokens_whatever_its_batch() -> None:
    logits = _logits()
    all_rows = _draws(BATCH, 7, logits)
    assert _draws(BATCH, 7, logits) == all_rows
    assert _draws(1, 7, logits[:1]) == all_rows[:1]
    assert _draws(2, 7, np.stack([logits[0], logits[2]]))[0] == all_rows[0]
    assert _draws(BATCH, 8, logits) != all_rows


def test_equal_prompts_of_one_seed_differ() -> None:
    first, second = _draws(2, 7, np.repeat(_logits()[:1], 2, axis=0))
    assert first != second


def test_a_seed_for_each_sequence_holds_wherever_it_stands() -> None:
    logits = _logits()
    tokens = _draws(BATCH, [1, 2, 3], logits)
    assert _draws(1, [3], logits[2:]) == tokens[2:]
    assert _draws(BATCH, [3, 1, 2], logits[[2, 0, 1]]) == [tokens[2], tokens[0], tokens[1]]


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": -0.1},
        {"temperature": float("nan")},
        {"top_k": 0},
        {"top_p": 0.0},
        {"top_p": 1.1},
        {"repetition_penalty": 0.0},
    ],
    ids=str,
)
def test_values_out_of_range(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        Sampling(**wrong)


@pytest.mark.parametrize("seed", [-1, "x", [1, 2]])
def test_wrong_seeds(seed: Any) -> None:
    with pytest.raises(InputError, match="seed"):
        Sampler(BATCH, VOCABULARY, Sampling(temperature=1.0), seed)
