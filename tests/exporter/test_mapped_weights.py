"""Pages of a mapped checkpoint are given back, and nothing that was written is lost."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from model_export.exporter.mapped_weights import release_mapped_pages, released_weights

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")

_BYTES = 32 * 1024**2


def _mapped(path: Path) -> torch.Tensor:
    """A tensor in a mapped file, every page of it read."""
    save_file({"w": torch.arange(_BYTES // 4, dtype=torch.float32)}, path)
    with safe_open(path, "pt") as file:
        tensor = file.get_tensor("w")
    assert tensor.sum() > 0
    return tensor


def _resident_kib(path: Path) -> int:
    lines = Path("/proc/self/smaps").read_text().splitlines()
    start = next(i for i, line in enumerate(lines) if line.endswith(str(path)))
    return next(int(line.split()[1]) for line in lines[start:] if line.startswith("Rss:"))


def test_pages_that_were_only_read_are_released(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    tensor = _mapped(path)
    expected = tensor.clone()
    assert _resident_kib(path) > 0.9 * _BYTES / 1024
    assert release_mapped_pages([tensor.data_ptr()]) >= _BYTES
    assert _resident_kib(path) < 1024
    assert torch.equal(tensor, expected)


def test_a_page_that_was_written_keeps_its_mapping(tmp_path: Path) -> None:
    tensor = _mapped(tmp_path / "model.safetensors")
    tensor[0] = 42
    assert release_mapped_pages([tensor.data_ptr()]) == 0
    assert tensor[0] == 42


def test_memory_outside_of_files_is_left_alone() -> None:
    tensor = torch.full((_BYTES // 4,), 3.0)
    assert release_mapped_pages([tensor.data_ptr()]) == 0
    assert bool((tensor == 3).all())


def test_a_model_that_ran_keeps_no_pages(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    width, layers = 2048, 2  # 16 MiB a layer.
    save_file({str(i): torch.full((width, width), 1e-3) for i in range(layers)}, path)
    model = torch.nn.Sequential(
        *(torch.nn.Linear(width, width, bias=False, device="meta") for _ in range(layers))
    )
    with safe_open(path, "pt") as file:
        for index, layer in enumerate(model):
            layer.weight = torch.nn.Parameter(file.get_tensor(str(index)), requires_grad=False)
    x = torch.ones(1, width)
    with released_weights(model):
        inside = model(x)
        assert _resident_kib(path) > 30 * 1024
    assert _resident_kib(path) < 1024
    assert torch.equal(inside, model(x))
