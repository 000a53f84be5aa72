"""Decode speed of SmolLM2-135M beside other runtimes of the same weights.

    ./pants run benchmarks:decode
    ./pants run benchmarks:decode -- --rounds 9 --new-tokens 200

float32, batch 1, greedy, two CPUs. Every contender is a process of its own, in an environment of
its own, that has loaded its model before the first round. In a round each generates once, one after
the other; its speed is that of its median round, without the first token. Exit status 1 if tokens
differ or a target is missed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_CPUS = 2
_PROMPT = (
    "Once upon a time, in a small village at the foot of the mountains, there lived an old "
    "clockmaker who had never"
)
# The root of the sandbox: this file's dependencies lie at the paths of their addresses.
_ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Contender:
    """A module to run in the environment of `resolve`, and the folder of the model it takes."""

    name: str
    resolve: str
    module: str
    model: str


@dataclass(frozen=True)
class Target:
    """`ours` is to be at least `ratio` times as fast as `other`."""

    ours: str
    other: str
    ratio: float


CONTENDERS = (
    Contender("ours, ONNX", "onnx", "decode_artifact", "smollm2_onnx"),
    Contender("transformers, eager", "onnx", "decode_transformers", "smollm2"),
    Contender("optimum ORTModel", "peer-optimum", "decode_optimum", "smollm2"),
    Contender("ours, OpenVINO", "serve-openvino", "decode_artifact", "smollm2_openvino"),
    Contender("OpenVINO GenAI", "peer-openvino-genai", "decode_openvino_genai", "smollm2_openvino"),
)
TARGETS = (
    Target("ours, ONNX", "transformers, eager", 1.6),
    Target("ours, ONNX", "optimum ORTModel", 1.0),
    Target("ours, OpenVINO", "OpenVINO GenAI", 1.0),
)


class ContenderFailed(RuntimeError):
    """A contender that can't be started, or ended before it answered; has its last lines."""


class Running:
    """A contender's process, and its rounds: tokens/s of each, and the tokens, always the same."""

    def __init__(self, contender: Contender, command: Sequence[str], path: str, log: Path) -> None:
        self.contender = contender
        self.speeds: list[float] = []
        self.tokens: list[int] = []
        self._log = log
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                # With -m, the first place where Python looks.
                cwd=_ROOT,
                env={**os.environ, "PYTHONPATH": path, "HF_HUB_OFFLINE": "1", "CI": "true"},
            )

    def wait_until_loaded(self) -> None:
        """Raises ContenderFailed if it ends instead."""
        self._answer()

    def generate(self) -> float:
        """One round's tokens/s. Raises ContenderFailed, also for tokens unlike the last round's."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            print(file=self._process.stdin, flush=True)
        answer = self._answer()
        tokens: list[int] = answer["tokens"]
        if self.tokens not in ([], tokens):
            raise ContenderFailed(f"{self.contender.name}: other tokens than in the last round.")
        self.tokens = tokens
        return float((len(tokens) - 1) / answer["seconds"])

    def close(self) -> None:
        """Let it end, and wait for that."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            tail = "\n".join(self._log.read_text(errors="replace").splitlines()[-5:])
            code = self._process.wait()
            raise ContenderFailed(f"{self.contender.name}: exit code {code}:\n{tail}")
        answer: dict[str, Any] = json.loads(line)
        return answer


def main() -> int:
    """Measure and print a table; 1 if a contender failed, tokens differ, or a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--new-tokens", type=int, default=128)
    parser.add_argument(
        "--environments",
        type=Path,
        default=Path(__file__).with_name("environments"),
        help="a folder with the JSON of decode_environment.py for each resolve",
    )
    parser.add_argument("--targets", type=Path, default=_ROOT / "targets")
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        # The contenders inherit it. Each takes as many threads as it has CPUs.
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:_CPUS])
    with tempfile.TemporaryDirectory() as logs, contextlib.ExitStack() as stack:
        running: list[Running] = []
        try:
            for contender in CONTENDERS:
                # One after the other: loading takes memory for a while.
                print(f"Loading {contender.name} ...", flush=True)
                running.append(_start(contender, options, Path(logs)))
                stack.callback(running[-1].close)
                running[-1].wait_until_loaded()
            # One round to warm up.
            for number in range(options.rounds + 1):
                print(f"Round {number} of {options.rounds} ...", flush=True)
                for each in running:
                    speed = each.generate()
                    if number:
                        each.speeds.append(speed)
        except ContenderFailed as error:
            print(error, file=sys.stderr)
            return 1
    return _report({each.contender.name: each for each in running}, options)


def _start(contender: Contender, options: argparse.Namespace, logs: Path) -> Running:
    environment = json.loads((options.environments / f"{contender.resolve}.json").read_text())
    if not Path(environment["python"]).exists():
        raise ContenderFailed(
            f"The environment of {contender.resolve} is gone from Pants' cache "
            f"({environment['python']}): run `./pants --no-local-cache run benchmarks:decode` once."
        )
    command = [environment["python"], "-m", f"benchmarks.{contender.module}"]
    command += [str(options.targets.resolve() / contender.model), _PROMPT, str(options.new_tokens)]
    path = os.pathsep.join([str(_ROOT), str(_ROOT / "src"), *environment["path"]])
    return Running(contender, command, path, logs / f"{contender.name}.log")


def _report(running: Mapping[str, Running], options: argparse.Namespace) -> int:
    print(f"\n{options.new_tokens} tokens, {options.rounds} rounds; tokens/s after the first token")
    print(f"{'':22}{'median':>8}{'least':>8}{'most':>8}")
    for name, each in running.items():
        median = statistics.median(each.speeds)
        print(f"{name:22}{median:8.1f}{min(each.speeds):8.1f}{max(each.speeds):8.1f}")
    good = True
    for target in TARGETS:
        ours, other = (
            statistics.median(running[name].speeds) for name in (target.ours, target.other)
        )
        reached = ours / other >= target.ratio
        good &= reached
        verdict = "" if reached else "  MISSED"
        print(f"{target.ours} / {target.other}: {ours / other:.2f} (>= {target.ratio}){verdict}")
    first = next(iter(running.values()))
    for name, each in running.items():
        if len(each.tokens) != options.new_tokens or each.tokens != first.tokens:
            same = sum(a == b for a, b in zip(each.tokens, first.tokens, strict=False))
            print(f"{name}: {len(each.tokens)} tokens, {same} as {first.contender.name}.")
            good = False
    if good:
        print("All gave the same tokens.")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
