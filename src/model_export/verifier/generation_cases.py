"""Generates greedily with an artifact and compares tokens, logits and caches with the eager model.

The eager model's token is fed at every step, whichever the artifact would have chosen: one
difference is counted once, and the logits stay comparable to the end. Where all choices agree that
is what a free generation does.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from model_export.manifest import Manifest
from model_export.probe import GenerationCase
from model_export.runtime.decoder import Decoder
from model_export.runtime.graph import Array
from model_export.verifier.differences import divergence, measure, not_finite
from model_export.verifier.errors import VerificationError
from model_export.verifier.graph_cases import described, too_far
from model_export.verifier.probe_tensors import ProbeTensors
from model_export.verifier.results import CaseResult, Check
from model_export.verifier.tolerance import Bounds

# In place of a component's name: all of them take part.
GENERATION = "generation"

_IDS, _MASK = "input_ids", "attention_mask"
_DECODER_IDS = "decoder_input_ids"
_CONFIGS = ("generation_config.json", "config.json")
_START = "decoder_start_token_id"


def run_generation(
    decoder: Decoder,
    case: GenerationCase,
    artifact: Path,
    manifest: Manifest,
    tensors: ProbeTensors,
    bounds: Bounds,
) -> CaseResult:
    """One prompt and its greedy tokens in a session that earlier cases may have used.

    Every step is one call, and is checked for its logits [batch, vocabulary], the token chosen from
    them and the cache's shapes. Where something is quantized, tokens and logits are judged over the
    whole case: by the share of equal tokens and the mean KL divergence.
    """
    start = time.monotonic()
    seen = _Seen()
    try:
        for step, logits in enumerate(_steps(decoder, case, artifact, manifest, tensors)):
            _look(seen, step, logits, decoder.cache_shapes(), case, tensors, bounds)
    except VerificationError:
        raise
    # Whatever a runtime raises for what the eager model generated is the verdict on the artifact.
    except Exception as error:
        seen.fail(len(seen.divergence), "call", f"fails with {described(error)}")
    return CaseResult(GENERATION, case.name, seen.checks(bounds), time.monotonic() - start)


@dataclass
class _Seen:
    """What the steps showed so far; failures with their step, of each check the first alone."""

    failures: dict[str, tuple[int, str]] = field(default_factory=dict)
    figures: dict[str, float] = field(default_factory=dict)
    divergence: list[float] = field(default_factory=list)
    chosen: int = 0
    agreeing: int = 0

    def fail(self, step: int, check: str, problem: str) -> None:
        self.failures.setdefault(check, (step, f"step {step}: {problem}"))

    def largest(self, name: str, value: float) -> None:
        self.figures[name] = max(value, self.figures.get(name, value))

    def checks(self, bounds: Bounds) -> tuple[Check, ...]:
        """The checks, those that failed at the earliest step first; causes before effects."""
        mean = float(np.mean(self.divergence)) if self.divergence else 0.0
        share = self.agreeing / self.chosen if self.chosen else 1.0
        last = len(self.divergence)
        if not mean <= bounds.tolerance.kl:
            problem = f"mean KL divergence is {mean:.3g} nats (allowed {bounds.tolerance.kl:.3g})"
            self.failures.setdefault("kl", (last, problem))
        if share < bounds.tolerance.tokens:
            problem = (
                f"{self.agreeing} of {self.chosen} tokens are the eager model's "
                f"(allowed {bounds.tolerance.tokens:.1%})"
            )
            self.failures.setdefault("tokens", (last, problem))
        figures = {
            "tokens": {"tokens": share},
            "logits": self.figures,
            "kl": {"kl": mean},
        }
        names = ("call", "cache shapes", "logits", "tokens", "kl")
        checks = [
            (self.failures.get(name, (last, None)), Check(name, None, figures.get(name, {})))
            for name in names
        ]
        checks.sort(key=lambda pair: (pair[0][1] is None, pair[0][0]))
        return tuple(Check(check.name, text, check.figures) for (_, text), check in checks)


def _look(
    seen: _Seen,
    step: int,
    logits: NDArray[np.float32],
    cache_shapes: Mapping[str, tuple[int, ...]],
    case: GenerationCase,
    tensors: ProbeTensors,
    bounds: Bounds,
) -> None:
    problem = next(_wrong_shapes(step, cache_shapes, case), None)
    if problem is not None:
        seen.fail(step, "cache shapes", problem)
    expected = tensors.step(case.logits, step)
    if logits.shape != expected.shape:
        problem = f"`logits` has the shape {list(logits.shape)} (expected {list(expected.shape)})"
        seen.fail(step, "logits", problem)
        return
    subject = f"`logits` {list(logits.shape)}"
    index = not_finite(expected, logits)
    if index is not None:
        problem = f"{subject} is {logits[index]} at {list(index)} (expected {expected[index]:.6g})"
        seen.fail(step, "logits", problem)
        return
    difference = measure(expected, logits, None)
    seen.largest("max_abs", difference.max_abs)
    seen.largest("max_rel", difference.max_rel)
    seen.divergence.append(float(divergence(expected, logits).mean()))
    if not bounds.quantized:
        for problem in too_far(subject, difference, bounds):
            seen.fail(step, "logits", problem)
    allowed = bounds.allowed(difference.scale)
    for row, token in enumerate(tensors.step(case.tokens, step).tolist()):
        chosen = int(logits[row].argmax())
        seen.chosen += 1
        seen.agreeing += chosen == token
        margin = float(expected[row, token] - expected[row, chosen])
        if chosen == token or bounds.quantized or (not bounds.exact_tokens and margin <= allowed):
            continue
        problem = (
            f"the token of sequence {row} is {chosen} (expected {token}, "
            f"which the eager model prefers by {margin:.3g})"
        )
        seen.fail(step, "tokens", problem)


def _wrong_shapes(
    step: int, got: Mapping[str, tuple[int, ...]], case: GenerationCase
) -> Iterator[str]:
    for name, over_steps in case.cache_shapes.items():
        if name not in got:
            yield f"`{name}` isn't in the cache"
        elif got[name][1:] != over_steps[step]:
            shown = list(over_steps[step])
            yield f"`{name}` holds {list(got[name][1:])} a sequence (expected {shown})"


def _steps(
    decoder: Decoder,
    case: GenerationCase,
    artifact: Path,
    manifest: Manifest,
    tensors: ProbeTensors,
) -> Iterator[NDArray[np.float32]]:
    """The logits after the prompt, and after each of the eager model's tokens but the last."""
    ids, mask, others = _prompt(case, artifact, manifest, tensors)
    batch, length = ids.shape
    if sum(case.chunks) != length:
        raise VerificationError(
            f"The probe's {case.name!r} feeds {sum(case.chunks)} of {length} tokens. Export again."
        )
    steps = tensors.shape(case.tokens)[1]
    decoder.start(batch, others, length + steps)
    ends = np.cumsum(case.chunks)
    for first, end in zip((0, *ends[:-1]), ends, strict=True):
        logits = decoder.feed(ids[:, first:end], mask[:, first:end])
    yield logits
    seen = np.ones((batch, 1), np.int64)
    for step in range(steps - 1):
        yield decoder.feed(tensors.step(case.tokens, step)[:, None], seen)


def _prompt(
    case: GenerationCase, artifact: Path, manifest: Manifest, tensors: ProbeTensors
) -> tuple[NDArray[np.int64], NDArray[np.int64], dict[str, Array]]:
    """Token ids and mask [batch, length] for the decoder, and what `start` takes.

    An encoder-decoder is fed its start token, and the encoder everything else.
    """
    inputs = tensors.get_all(case.inputs)
    ports = {port.name for component in manifest.components for port in component.inputs}
    if _DECODER_IDS in ports:
        ids = inputs.pop(_DECODER_IDS, None)
        if ids is None:
            batch = next(iter(inputs.values())).shape[0]
            ids = np.full((batch, 1), _start_token(artifact), np.int64)
        return ids, np.ones_like(ids), inputs
    ids = inputs.pop(_IDS)
    mask = inputs.pop(_MASK, None)
    return ids, np.ones_like(ids) if mask is None else mask, inputs


def _start_token(artifact: Path) -> int:
    for name in _CONFIGS:
        path = artifact / name
        if path.is_file():
            token = json.loads(path.read_text(encoding="utf-8")).get(_START)
            if token is not None:
                return int(token)
    raise VerificationError(
        f"Neither {' nor '.join(_CONFIGS)} of the artifact has a {_START}: "
        "add it to the checkpoint, or the probe needs decoder_input_ids."
    )
