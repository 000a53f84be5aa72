"""`python -m model_export.runtime ARTIFACT [TEXT...]`: an artifact in the terminal."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

from model_export.runtime.arrays import input_dtypes
from model_export.runtime.errors import InputError, RuntimeModelError
from model_export.runtime.generation import Completion
from model_export.runtime.model import Message, Model, load
from model_export.runtime.preparation import MAX_NEW_TOKENS, GenerationOptions
from model_export.runtime.tensor_json import read_tensors, tensors_json

_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns an exit status: 1 and one line for whatever can't be done."""
    options = _parser().parse_intermixed_args(arguments)
    try:
        _run(options)
        sys.stdout.flush()
    except RuntimeModelError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print()
        return _INTERRUPTED
    except BrokenPipeError:
        # The reader has seen enough; nothing may be written at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m model_export.runtime",
        description="Run an artifact: continue a text, chat, embed texts, or call a graph.",
    )
    parser.add_argument("artifact", type=Path, help="the folder of an artifact")
    parser.add_argument(
        "texts",
        nargs="*",
        metavar="TEXT",
        help="prompts, or texts to embed; without any they are read from stdin",
    )
    parser.add_argument("--chat", action="store_true", help="talk; a line of stdin is a turn")
    parser.add_argument("--inputs", type=Path, metavar="FILE", help="tensors by name, as JSON")
    parser.add_argument("--component", metavar="NAME", help="call this graph with --inputs")
    parser.add_argument("--max-new-tokens", type=int, default=MAX_NEW_TOKENS, metavar="N")
    parser.add_argument(
        "--temperature", type=float, default=0.0, metavar="T", help="0 (default): no chance"
    )
    parser.add_argument("--top-k", type=int, metavar="K", help="draw from the K likeliest tokens")
    parser.add_argument("--top-p", type=float, metavar="P", help="draw from those that reach P")
    parser.add_argument("--repetition-penalty", type=float, metavar="X")
    parser.add_argument("--seed", type=int, metavar="N", help="same seed, same tokens")
    parser.add_argument(
        "--stop", action="append", default=[], metavar="TEXT", help="end before it; may be repeated"
    )
    parser.add_argument("--device", default="cpu", help="cpu (default) or cuda")
    parser.add_argument(
        "--timings", action="store_true", help="time to first token and tokens/s, on stderr"
    )
    return parser


def _run(options: argparse.Namespace) -> None:
    model = load(options.artifact, options.device)
    if options.component and not options.inputs:
        raise InputError("--component needs --inputs: the tensors to call it with.")
    if options.chat:
        _chat(model, options)
    elif options.inputs:
        _inputs(model, options)
    elif model.generates:
        _generate(model, options)
    elif model.embeds:
        _embed(model, options.texts or _lines(sys.stdin))
    else:
        raise InputError(f"{options.artifact} takes no text: pass --inputs FILE.")


def _generation_options(options: argparse.Namespace) -> GenerationOptions:
    return GenerationOptions(
        max_new_tokens=options.max_new_tokens,
        temperature=options.temperature,
        top_k=options.top_k,
        top_p=options.top_p,
        repetition_penalty=options.repetition_penalty,
        stop=options.stop,
        seed=options.seed,
    )


class _Printer:
    """Prints text as it comes, and measures: the clock starts when it is made."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._first: float | None = None

    def __call__(self, row: int, text: str) -> None:
        if self._first is None:
            self._first = time.perf_counter()
        print(text, end="", flush=True)

    def finish(self, completion: Completion, *, timings: bool) -> None:
        """End the line; the timings on stderr if asked for."""
        print(flush=True)
        if not timings or self._first is None:
            return
        later = len(completion.tokens) - 1
        seconds = time.perf_counter() - self._first
        rate = f", then {later / seconds:.1f} tokens/s" if later else ""
        print(
            f"first token after {(self._first - self._start) * 1000:.0f} ms{rate} "
            f"({len(completion.tokens)} tokens)",
            file=sys.stderr,
        )


def _generate(model: Model, options: argparse.Namespace) -> None:
    if not options.texts and sys.stdin.isatty():
        raise InputError("Give a prompt, --chat or --inputs FILE.")
    model.warm_up()
    for prompt in options.texts or [sys.stdin.read().rstrip("\n")]:
        printer = _Printer()
        (completion,) = model.generate(prompt, stream=printer, **_generation_options(options))
        printer.finish(completion, timings=options.timings)


def _chat(model: Model, options: argparse.Namespace) -> None:
    if not model.generates:
        raise InputError(f"{options.artifact} can't chat: it wasn't exported for generation.")
    model.warm_up()
    messages: list[Message] = []
    for line in _turns(options.texts):
        messages.append({"role": "user", "content": line})
        printer = _Printer()
        answer = model.chat(messages, stream=printer, **_generation_options(options))
        printer.finish(answer, timings=options.timings)
        messages.append({"role": "assistant", "content": answer.text})


def _turns(texts: Sequence[str]) -> Iterator[str]:
    """What the user says: the given texts, then each line of stdin that isn't empty."""
    yield from texts
    terminal = sys.stdin.isatty()
    while True:
        if terminal:
            print("> ", end="", flush=True)
        line = sys.stdin.readline()
        if not line:
            if terminal:
                print()
            return
        if line.strip():
            yield line.rstrip("\n")


def _inputs(model: Model, options: argparse.Namespace) -> None:
    if model.generates and options.component is None:
        tensors = read_tensors(options.inputs, input_dtypes(model.artifact.manifest.components))
        completions = model.generate(**tensors, **_generation_options(options))
        for completion in completions:
            print(json.dumps({"tokens": completion.tokens, "text": completion.text}))
        return
    record = model.artifact.component(options.component)
    tensors = read_tensors(options.inputs, input_dtypes([record]))
    print(tensors_json(model.forward(record.name, **tensors)))


def _embed(model: Model, texts: Sequence[str] | Iterator[str]) -> None:
    for text in texts:
        (vector,) = model.embed(text)
        print(
            json.dumps({"text": text, "embedding": vector.tolist()}, ensure_ascii=False), flush=True
        )


def _lines(file: TextIO) -> Iterator[str]:
    """Each line of a file that isn't empty, as it comes."""
    for line in file:
        if line.strip():
            yield line.rstrip("\n")
