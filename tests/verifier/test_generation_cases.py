"""Generations with a decoder that works, and with decoders that are wrong in one way each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from exporter.backends.tiny_models import generation_spec, left_padded
from model_export.probe import read_probe
from model_export.runtime.decoder import Decoder, open_decoder
from model_export.runtime.graph import Array
from model_export.verifier.generation_cases import run_generation
from model_export.verifier.probe_tensors import ProbeTensors
from model_export.verifier.results import CaseResult
from model_export.verifier.tolerance import Bounds, choose_bounds
from verifier.artifacts import Built, build
from verifier.wrong_modules import one_layer_decoder

_FLOAT32 = choose_bounds({"dtype": "float32", "config": {}}, {})


class _Wrapped:
    """The artifact's own decoder; subclasses spoil one thing."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self.batch = 0
        self.calls = 0

    def start(self, batch: int, inputs: Mapping[str, Array], capacity: int) -> None:
        self._decoder.start(batch, inputs, capacity)
        self.calls = 0

    def feed(self, ids: NDArray[np.int64], mask: NDArray[np.int64]) -> NDArray[np.float32]:
        self.calls += 1
        return self._decoder.feed(ids, mask)

    def reorder(self, rows: NDArray[np.int64]) -> None:
        self._decoder.reorder(rows)

    def cache_shapes(self) -> dict[str, tuple[int, ...]]:
        return self._decoder.cache_shapes()


class _Leaky(_Wrapped):
    """What the last batch left behind is still there."""

    _last: NDArray[np.int64] | None = None

    def start(self, batch: int, inputs: Mapping[str, Array], capacity: int) -> None:
        super().start(batch, inputs, capacity + 1)
        if self._last is not None:
            token = np.resize(self._last, (batch, 1))
            self._decoder.feed(token, np.ones_like(token))

    def feed(self, ids: NDArray[np.int64], mask: NDArray[np.int64]) -> NDArray[np.float32]:
        self._last = ids[:, -1:]
        return super().feed(ids, mask)


class _OtherToken(_Wrapped):
    """At its sixth call it prefers another token, by a hair or by much."""

    by = 1.0

    def feed(self, ids: NDArray[np.int64], mask: NDArray[np.int64]) -> NDArray[np.float32]:
        logits = super().feed(ids, mask).copy()
        if self.calls == 6:
            first, second = np.argsort(logits[0])[[-1, -2]]
            logits[0, second] = logits[0, first] + self.by
        return logits


class _ShortCache(_Wrapped):
    """Says that its cache is one position shorter from the third call on."""

    def cache_shapes(self) -> dict[str, tuple[int, ...]]:
        shapes = super().cache_shapes()
        if self.calls < 3:
            return shapes
        return {name: (*s[:2], s[2] - 1, *s[3:]) for name, s in shapes.items()}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("decoder")
    return build(one_layer_decoder, left_padded(2, 8, 3), generation_spec("dynamo", {}), folder)


def _run(built: Built, decoder: Decoder, bounds: Bounds = _FLOAT32) -> list[CaseResult]:
    with ProbeTensors(built.probe) as tensors:
        return [
            run_generation(decoder, case, built.artifact, built.manifest, tensors, bounds)
            for case in read_probe(built.probe).generations
        ]


def _decoder(built: Built) -> Decoder:
    return open_decoder(built.artifact, built.manifest)


def test_three_prompts_in_one_session(built: Built) -> None:
    cases = _run(built, _Wrapped(_decoder(built)))
    assert [case.failure for case in cases] == [None] * 3
    assert len(cases) == 3


def test_a_state_that_leaks_shows_in_the_second_case(built: Built) -> None:
    first, second, third = _run(built, _Leaky(_decoder(built)))
    assert first.failure is None
    assert (second.failure or "").startswith("`generation`, one prompt in chunks: step 0: ")
    assert third.failure is not None


def test_another_token_fails_at_its_step(built: Built) -> None:
    first, *_ = _run(built, _OtherToken(_decoder(built)))
    failures = {check.name: check.failure or "" for check in first.checks}
    assert failures["logits"].startswith("step 5: `logits` [2, 256] differs by ")
    assert failures["tokens"].startswith("step 5: the token of sequence 0 is ")
    assert "which the eager model prefers by " in failures["tokens"]


def test_half_precision_may_choose_another_token_of_a_tie_alone(built: Built) -> None:
    half = choose_bounds({"dtype": "float16", "config": {}}, {"kl": 1.0, "cosine": -1.0})
    decoder = _OtherToken(_decoder(built))
    decoder.by = 1e-6
    wide = replace(half, tolerance=replace(half.tolerance, max_abs=10.0, max_rel=10.0))
    assert _run(built, decoder, wide)[0].failure is None
    narrow = replace(half, tolerance=replace(half.tolerance, max_abs=1e-5, max_rel=1e-5))
    tokens = {check.name: check for check in _run(built, decoder, narrow)[0].checks}["tokens"]
    assert (tokens.failure or "").startswith("step 5: the token of sequence 0 is ")


def test_quantized_tokens_are_judged_by_their_share(built: Built) -> None:
    spec = {
        "dtype": "float32",
        "config": {},
        "quantizer": {
            "type": "OnnxRuntimeQuantizer",
            "config": "OnnxRuntimeDynamicConfig",
        },
    }
    decoder = _OtherToken(_decoder(built))
    assert _run(built, decoder, choose_bounds(spec, {}))[0].failure is None
    # One of 2 x 16 tokens is another one: 96.9 %.
    first = _run(built, decoder, choose_bounds(spec, {"tokens": 0.97}))[0]
    assert first.failure == (
        "`generation`, a batch of unequal lengths: 31 of 32 tokens are the eager model's "
        "(allowed 97.0%)"
    )


def test_a_cache_of_another_length_fails(built: Built, tmp_path: Path) -> None:
    first, *_ = _run(built, _ShortCache(_decoder(built)))
    assert (first.failure or "").startswith(
        "`generation`, a batch of unequal lengths: step 2: `cache.layers.0.keys` holds [2, 11, 16]"
    )
