"""Convolutions of image patches, which ExecuTorch can't run as they are."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from executorch.exir import to_edge
from executorch.runtime import Runtime

from model_export.exporter.backends.executorch.whole_convolutions import whole_convolutions

PATCH = (2, 4, 4)


class Patches(torch.nn.Module):
    """As Qwen2-VL makes vectors of patches."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.proj = torch.nn.Conv3d(3, 8, PATCH, stride=PATCH)

    def forward(self, patches: torch.Tensor) -> torch.Tensor:
        vectors: torch.Tensor = self.proj(patches.view(-1, 3, *PATCH)).view(-1, 8)
        return vectors


def _run(patches: torch.Tensor, folder: Path) -> torch.Tensor:
    program = to_edge(torch.export.export(Patches(), (patches,))).to_executorch()
    (folder / "model.pte").write_bytes(program.buffer)
    method = Runtime.get().load_program(folder / "model.pte").load_method("forward")
    result: torch.Tensor = method.execute([patches])[0].clone()
    return result


def test_a_convolution_of_a_whole_patch_is_a_product(tmp_path: Path) -> None:
    patches = torch.rand(5, 96)
    with whole_convolutions():
        found = _run(patches, tmp_path)
    torch.testing.assert_close(found, Patches()(patches))


def test_executorch_still_cannot_run_it(tmp_path: Path) -> None:
    """If this fails, `whole_convolutions` can go."""
    with pytest.raises(RuntimeError, match="0x12"):
        _run(torch.rand(5, 96), tmp_path)


def test_others_stay_convolutions() -> None:
    layer, images = torch.nn.Conv3d(3, 8, PATCH, stride=PATCH), torch.rand(1, 3, 4, 8, 8)
    convolved = layer(images)
    assert convolved.shape == (1, 8, 2, 2, 2)
    with whole_convolutions():
        assert torch.equal(layer(images), convolved)
