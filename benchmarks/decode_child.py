"""What every contender of `benchmarks:decode` does: load once, then generate when told to.

A contender reads its model folder, the prompt and the number of tokens from its command line. It
prints a line `{}` when it has loaded; then, for each line on stdin, generates greedily and prints
`{"seconds": ..., "tokens": [...]}`: the time from the first new token to the last.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Task:
    """Continue `prompt` by exactly `new_tokens` tokens with the model in `folder`."""

    folder: Path
    prompt: str
    new_tokens: int


@dataclass
class Clock:
    """The time of every new token."""

    times: list[float] = field(default_factory=list)

    def tick(self) -> None:
        """A token has come."""
        self.times.append(time.perf_counter())

    @property
    def seconds(self) -> float:
        """From the first new token to the last."""
        return self.times[-1] - self.times[0]


# Generates once, ticking at each token; returns the new tokens.
Generate = Callable[[Clock], list[int]]


def contend(load: Callable[[Task], Generate]) -> None:
    """Serve the parent until it closes stdin. What libraries print goes to stderr."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    folder, prompt, new_tokens = sys.argv[1:]
    generate = load(Task(Path(folder), prompt, int(new_tokens)))
    print(json.dumps({}), file=answers, flush=True)
    for _ in sys.stdin:
        clock = Clock()
        tokens = generate(clock)
        print(
            json.dumps({"seconds": clock.seconds, "tokens": tokens}),
            file=answers,
            flush=True,
        )
