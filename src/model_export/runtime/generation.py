"""The loop from a prompt to its continuation, token by token, for a batch of sequences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np

from model_export.runtime.decoder import Decoder
from model_export.runtime.errors import InputError
from model_export.runtime.graph import Array
from model_export.runtime.prompts import TokenBatch
from model_export.runtime.sampling import Sampler, Sampling, TokenRules
from model_export.runtime.text_stream import TextStream

# The model ended the text; a stop string came; there was no room for more.
Finish: TypeAlias = Literal["eos", "stop", "length"]


@dataclass(frozen=True)
class Completion:
    """What a model said to one prompt.

    `tokens` are the new ones, with the one that ended the text; `text` is without special tokens
    and without the stop string, None where the artifact has no tokenizer.
    """

    text: str | None
    tokens: tuple[int, ...]
    finish: Finish


@dataclass(frozen=True)
class Piece:
    """One new token of sequence `row`, and the text that may be shown since; often empty."""

    row: int
    token: int
    text: str


@dataclass(frozen=True)
class Limits:
    """When a sequence ends: after `max_new_tokens`, or at a token of `eos`, then fed with `pad`."""

    max_new_tokens: int
    eos: frozenset[int]
    pad: int

    def __post_init__(self) -> None:
        if self.max_new_tokens < 1:
            raise InputError(f"max_new_tokens is {self.max_new_tokens}: give at least 1.")


@dataclass
class _Row:
    """One sequence in the making."""

    stream: TextStream | None
    tokens: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    finish: Finish | None = None

    def accept(self, token: int, limits: Limits) -> str:
        """Append a token; sets `finish`. The text that may be shown."""
        self.tokens.append(token)
        text = ""
        if token in limits.eos:
            self.finish = "eos"
        elif self.stream is not None:
            text = self.stream.push(token)
            if self.stream.stopped:
                self.finish = "stop"
        if self.finish is None and len(self.tokens) == limits.max_new_tokens:
            self.finish = "length"
        if self.finish is not None and self.stream is not None:
            text += self.stream.flush()
        self.texts.append(text)
        return text

    def completion(self) -> Completion:
        text = None if self.stream is None else "".join(self.texts)
        return Completion(text, tuple(self.tokens), self.finish or "length")


class Generation:
    """One batch that is being continued: iterate once for its pieces, then read `completions`."""

    def __init__(
        self,
        decoder: Decoder,
        prompt: TokenBatch,
        *,
        limits: Limits,
        sampling: Sampling,
        rules: TokenRules,
        seed: int | Sequence[int] | None = None,
        inputs: Mapping[str, Array] | None = None,
        streams: Sequence[TextStream] | None = None,
    ) -> None:
        """`inputs` are what the decoder's `start` takes; `streams` make text, one for each row."""
        self._decoder = decoder
        self._prompt = prompt
        self._limits = limits
        self._sampling = sampling
        self._rules = rules
        self._seed = seed
        self._inputs = inputs or {}
        batch = len(prompt.ids)
        self._rows = [_Row(None if streams is None else streams[row]) for row in range(batch)]

    def __iter__(self) -> Iterator[Piece]:
        limits, rows, decoder = self._limits, self._rows, self._decoder
        batch, length = self._prompt.ids.shape
        # The last token is chosen, and never fed.
        decoder.start(batch, self._inputs, length + limits.max_new_tokens - 1)
        logits = decoder.feed(self._prompt.ids, self._prompt.mask)
        sampler = Sampler(batch, logits.shape[-1], self._sampling, self._seed, self._rules)
        for index in range(batch):
            sampler.see(index, self._prompt.real(index))
        ids = np.empty((batch, 1), np.int64)
        mask = np.ones((batch, 1), np.int64)
        while True:
            ids[:, 0] = sampler.choose(logits)
            for index, row in enumerate(rows):
                if row.finish is not None:
                    ids[index, 0] = limits.pad
                    continue
                token = int(ids[index, 0])
                yield Piece(index, token, row.accept(token, limits))
            if all(row.finish is not None for row in rows):
                return
            logits = decoder.feed(ids, mask)

    @property
    def completions(self) -> list[Completion]:
        """What has been said so far, one for each prompt."""
        return [row.completion() for row in self._rows]
