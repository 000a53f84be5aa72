"""The command line, on the repository's own ONNX artifacts."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from model_export.runtime.cli import main
from runtime.served import ANSWER, PARIS, PARIS_TEXT, QUESTION, TARGETS, WATER

SMOLLM2 = str(TARGETS / "smollm2_onnx")
MINILM = str(TARGETS / "minilm_onnx")
QWEN3 = str(TARGETS / "qwen3_tiny_onnx")
TWELVE = ("--max-new-tokens", "12")

Capture = pytest.CaptureFixture[str]


def _stdin(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))


def test_a_prompt_is_continued(capsys: Capture) -> None:
    assert main([SMOLLM2, PARIS, *TWELVE]) == 0
    out, err = capsys.readouterr()
    assert out == f"{PARIS_TEXT}\n"
    assert err == ""


def test_a_prompt_from_stdin_and_timings(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    _stdin(monkeypatch, f"{PARIS}\n")
    assert main([SMOLLM2, *TWELVE, "--stop", "answer", "--timings"]) == 0
    out, err = capsys.readouterr()
    assert out == " Paris.\n\nThe \n"
    timings = r"first token after \d+ ms, then \d+\.\d tokens/s \(6 tokens\)\n"
    assert re.fullmatch(timings, err)


def test_several_prompts(capsys: Capture) -> None:
    assert main([SMOLLM2, PARIS, WATER, "--max-new-tokens", "6"]) == 0
    assert capsys.readouterr().out == " Paris.\n\nThe answer\n 1,000\n"


def test_a_seed_gives_the_same_text(capsys: Capture) -> None:
    said = []
    for seed in ("1", "1", "2"):
        arguments = ["--temperature", "1", "--top-k", "50", "--top-p", "0.95", "--seed", seed]
        assert main([SMOLLM2, PARIS, *TWELVE, *arguments]) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1] != said[2]


def test_a_piped_chat_has_a_history(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second answer is another one where the first turn is missing."""
    _stdin(monkeypatch, "Say it again.\n\n")
    assert main([SMOLLM2, "--chat", QUESTION["content"], "--max-new-tokens", "30"]) == 0
    first, second = capsys.readouterr().out.split("\n", 1)
    assert first == ANSWER
    _stdin(monkeypatch, "Say it again.\n")
    assert main([SMOLLM2, "--chat", "--max-new-tokens", "30"]) == 0
    alone = capsys.readouterr().out
    assert second.strip() and alone.strip() and second != alone


def test_embeddings_of_texts(capsys: Capture) -> None:
    assert main([MINILM, "A man is eating food.", "ü"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["text"] for line in lines] == ["A man is eating food.", "ü"]
    assert [len(line["embedding"]) for line in lines] == [384, 384]


def test_embeddings_of_lines(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    _stdin(monkeypatch, "one\n\ntwo")
    assert main([MINILM]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["text"] for line in lines] == ["one", "two"]


def test_any_graph_with_inputs(capsys: Capture, tmp_path: Path) -> None:
    """Nested lists take the input's dtype; what comes out can go in."""
    inputs = tmp_path / "inputs.json"
    flat = {"shape": [1, 3], "dtype": "int64", "values": [0, 0, 0]}
    ids = {"input_ids": [[101, 2054, 102]], "attention_mask": [[1, 1, 1]], "token_type_ids": flat}
    inputs.write_text(json.dumps(ids))
    assert main([MINILM, "--inputs", str(inputs)]) == 0
    outputs = json.loads(capsys.readouterr().out)
    assert outputs["last_hidden_state"]["shape"] == [1, 3, 384]
    assert outputs["pooler_output"]["dtype"] == "float32"
    assert len(outputs["last_hidden_state"]["values"][0][2]) == 384


def test_generation_from_inputs(capsys: Capture, tmp_path: Path) -> None:
    inputs = tmp_path / "inputs.json"
    inputs.write_text('{"input_ids": [[0, 0, 5, 6], [7, 8, 9, 10]], "attention_mask": '
                      "[[0, 0, 1, 1], [1, 1, 1, 1]]}")  # fmt: skip
    assert main([QWEN3, "--inputs", str(inputs), "--max-new-tokens", "4"]) == 0
    padded, _ = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert padded["text"] is None and len(padded["tokens"]) == 4
    inputs.write_text('{"input_ids": [[5, 6]]}')
    assert main([QWEN3, "--inputs", str(inputs), "--max-new-tokens", "4"]) == 0
    assert json.loads(capsys.readouterr().out) == padded


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere", "Hello"], "nowhere is no artifact, it has no manifest.json"),
        ([QWEN3, "Hello"], "has no tokenizer.json: pass token ids"),
        ([QWEN3, "--chat", "Hello"], "has no tokenizer.json"),
        ([MINILM, "--chat"], "can't chat: it wasn't exported for generation"),
        ([MINILM, "--inputs", "nowhere.json"], "nowhere.json can't be read: No such file"),
        ([MINILM, "--component", "model"], "--component needs --inputs"),
        ([QWEN3, "Hello", "--device", "tpu"], "onnx artifacts run on cpu or cuda"),
        ([SMOLLM2, "Hello", "--temperature", "-1"], "temperature is -1.0: give 0 (greedy)"),
        ([SMOLLM2, "Hello", "--max-new-tokens", "0"], "max_new_tokens is 0: give at least 1"),
        ([SMOLLM2, "Hello", "--stop", ""], "stop has an empty string"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_done_is_one_line(
    arguments: list[str], said: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    _stdin(monkeypatch, "")
    assert main(arguments) == 1
    out, err = capsys.readouterr()
    assert err.startswith("error: ") and said in err and err.count("\n") == 1
    assert out == ""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is no JSON"),
        ("[1]", "holds no object"),
        ('{"input_ids": [[1], [2, 3]]}', "input_ids is no tensor"),
        ('{"input_ids": {"shape": [2], "values": [1]}}', "input_ids is no tensor"),
        ('{"input_ids": {"values": [1], "dtype": "int65"}}', "input_ids is no tensor"),
        ('{"input_idx": [[1]]}', "has no input `input_idx`. Did you mean `input_ids`?"),
    ],
)
def test_wrong_input_files(text: str, said: str, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "inputs.json").write_text(text)
    assert main([MINILM, "--inputs", str(tmp_path / "inputs.json")]) == 1
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == 1


def test_an_interrupt_ends_it_quietly() -> None:
    """Ctrl-C in the middle of an answer."""
    process = subprocess.Popen(
        [sys.executable, "-m", "model_export.runtime", SMOLLM2, PARIS, "--max-new-tokens", "4000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert process.stdout is not None
    assert process.stdout.read(1) == b" "
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err == b""
