"""The C++ program, built with CMake and run on exports, against eager `generate`."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from executorch.exir import to_edge
from transformers import Qwen3ForCausalLM

from exporter.backends.executorch.one_layer import one_layer_qwen3
from exporter.backends.tiny_models import export, generation_spec, greedy, left_padded
from model_export.exporter.backends.executorch.flatc import use_packaged_flatc

APP = Path("src/apps/executorch_decode")
CACHE_LENGTH = 32
IN_PLACE = {
    "alloc_graph_input": False,
    "alloc_graph_output": False,
    "alloc_mutable_buffers": False,
}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compilers = [os.environ.get("CXX"), "c++", "g++", "clang++"]
    if not any(name and shutil.which(name) for name in compilers):
        pytest.skip("no C++ compiler on PATH (c++, g++, clang++) and no CXX to build the program")
    build = tmp_path_factory.mktemp("build")
    cmake, ninja = (APP / "cmake/bin/cmake").resolve(), (APP / "ninja/ninja").resolve()
    _run(
        cmake,
        *("-S", APP, "-B", build, "-G", "Ninja"),
        f"-DCMAKE_MAKE_PROGRAM={ninja}",
        f"-DCMAKE_PREFIX_PATH={(APP / 'executorch').resolve()}",
        "-DCMAKE_BUILD_TYPE=Release",
        "-DCMAKE_CXX_FLAGS=-Werror",
    )
    _run(cmake, "--build", build)
    return build / "executorch_decode"


def _run(*arguments: str | Path) -> None:
    done = subprocess.run(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout


@pytest.fixture(scope="module")
def model() -> Qwen3ForCausalLM:
    """One layer whose next token depends on all before.

    With tied embeddings and small weights it would repeat its last token, whatever the cache holds.
    """
    config = one_layer_qwen3().config
    config.tie_word_embeddings = False
    config.initializer_range = 0.3
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(config).eval()
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0
    return model


@pytest.fixture(scope="module")
def decode(model: Qwen3ForCausalLM, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A decode component with a static cache, all inputs and outputs in the caller's memory."""
    spec = generation_spec(
        "executorch",
        IN_PLACE,
        generation_config={"cache_implementation": "static", "max_cache_len": CACHE_LENGTH},
    )
    folder = tmp_path_factory.mktemp("in_place")
    record = export(model, left_padded(2, 8, 3), spec, folder)["decode"]
    cache = [f"cache.layers.0.{part}" for part in ("keys", "values", "cumulative_length")]
    # The order that the program relies on.
    assert [tensor.name for tensor in record.inputs] == [
        "input_ids",
        "attention_mask.full_attention",
        "position_ids",
        *(f"input.{name}" for name in cache),
    ]
    assert [tensor.name for tensor in record.outputs] == [
        *(f"updated.{name}" for name in cache),
        "logits",
        *(f"output.{name}" for name in cache),
    ]
    return folder / record.file


def _decode(program: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program, *map(str, arguments)], capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize("prompt", [[5, 9, 100, 7], [1]], ids=["prompt", "one-token"])
def test_says_what_the_eager_model_says_up_to_the_last_slot(
    model: Qwen3ForCausalLM, program: Path, decode: Path, prompt: list[int]
) -> None:
    # The last token is never fed, so needs no slot.
    steps = CACHE_LENGTH - len(prompt) + 1
    ids = torch.tensor([prompt])
    expected = greedy(model, {"input_ids": ids, "attention_mask": torch.ones_like(ids)}, steps)[0]
    forgetful = [int(model(torch.tensor([[token]])).logits.argmax()) for token in expected[:-1]]
    assert forgetful != expected[1:].tolist()  # Else nothing here would need the cache.
    said = _decode(program, decode, steps, *prompt)
    assert said.returncode == 0, said.stderr
    assert [int(token) for token in said.stdout.split()] == expected.tolist()


def test_more_tokens_than_the_cache_holds(program: Path, decode: Path) -> None:
    said = _decode(program, decode, 1, *range(CACHE_LENGTH + 1))
    assert said.returncode == 1
    assert said.stderr.splitlines()[-1] == (
        "executorch_decode: the cache holds 32 tokens, not 33: export with a larger max_cache_len"
    )


class _CacheAlone(torch.nn.Module):
    """The inputs and outputs of a decode graph, and next to nothing in between."""

    def forward(
        self,
        ids: torch.Tensor,
        mask: torch.Tensor,
        positions: torch.Tensor,
        cache: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        cache.add_(1.0)
        return (ids + positions)[..., None].float(), cache + mask.sum()


class _Embedding(torch.nn.Module):
    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return ids[..., None].float()


@pytest.mark.parametrize(
    ("module", "inputs", "message"),
    [
        (_CacheAlone(), 4, "output 0 lies in the arena: export with alloc_graph_input, "),
        (_Embedding(), 1, "not a decode graph with one mask and a static cache: "),
    ],
    ids=["planned-memory", "no-decode-graph"],
)
def test_other_programs(
    program: Path, tmp_path: Path, module: torch.nn.Module, inputs: int, message: str
) -> None:
    ids, mask = torch.ones(1, 2, dtype=torch.int64), torch.ones(1, 1, 2, 4, dtype=torch.bool)
    sample = (ids, mask, ids.clone(), torch.zeros(1, 1, 4, 8))[:inputs]
    use_packaged_flatc()
    lowered = to_edge(torch.export.export(module, sample)).to_executorch()
    path = tmp_path / "other.pte"
    path.write_bytes(lowered.buffer)
    said = _decode(program, path, 1, 5)
    assert said.returncode == 1
    assert said.stderr.splitlines()[-1].startswith(f"executorch_decode: {message}")


def test_no_token_id(program: Path, decode: Path) -> None:
    said = _decode(program, decode, 1, "five")
    assert said.returncode == 1
    assert "'five' is no token id and no number of tokens" in said.stderr
