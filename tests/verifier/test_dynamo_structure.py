"""What is read of a `.pt2` without loading it."""

from __future__ import annotations

from pathlib import Path

import torch

from model_export.manifest import ComponentRecord, TensorRecord
from model_export.verifier.structure.dynamo import inspect


class _Optional(torch.nn.Module):
    def forward(
        self, first: torch.Tensor, mask: torch.Tensor | None, last: torch.Tensor
    ) -> torch.Tensor:
        return first + last if mask is None else first * mask + last


def test_an_argument_of_none_is_no_input(tmp_path: Path) -> None:
    tensor = torch.ones(2, 3)
    program = torch.export.export(
        _Optional(), (), {"first": tensor, "mask": None, "last": tensor.clone()}
    )
    torch.export.save(program, tmp_path / "model.pt2")
    ports = tuple(TensorRecord(name, "float32", (2, 3)) for name in ("first", "last"))
    outputs = (TensorRecord("output", "float32", (2, 3)),)
    record = ComponentRecord("model", "model.pt2", (), ports, outputs)
    found = inspect(tmp_path, record, {})
    assert [port.name for port in found.inputs] == ["first", "last"]
    assert [port.shape for port in found.outputs] == [(2, 3)]
