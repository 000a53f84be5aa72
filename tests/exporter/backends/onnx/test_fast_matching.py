"""The cheaper pattern matching changes no graph, and is still needed."""

from __future__ import annotations

import onnx_ir
import pytest
import torch
from onnxscript.rewriter._matcher import SimplePatternMatcher

from model_export.exporter.backends.onnx.fast_matching import fast_matching


class _Chain(torch.nn.Module):
    """`depth` times the operators that a transformer repeats; the optimiser visits each."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(depth))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            half, rest = layer(x).split(4, dim=-1)
            x = torch.nn.functional.silu(torch.cat([rest, half], dim=-1)) + x[:, :8]
        return x


class _IdentifierCount:
    """How often nodes were asked for their operator: once each whenever an index is built."""

    def __init__(self) -> None:
        self.calls = 0


@pytest.fixture
def identifiers(monkeypatch: pytest.MonkeyPatch) -> _IdentifierCount:
    count = _IdentifierCount()
    original = onnx_ir.Node.op_identifier

    def op_identifier(node: onnx_ir.Node) -> tuple[str, str, str]:
        count.calls += 1
        return original(node)

    monkeypatch.setattr(onnx_ir.Node, "op_identifier", op_identifier)
    return count


def _convert(depth: int) -> bytes:
    program = torch.onnx.export(
        _Chain(depth).eval(), (torch.zeros(2, 8),), optimize=True, verbose=False
    )
    return onnx_ir.to_proto(program.model).SerializeToString(deterministic=True)


def test_graphs_are_byte_equal() -> None:
    plain = _convert(4)
    with fast_matching():
        fast = _convert(4)
    assert fast == plain


def test_matcher_is_restored() -> None:
    before = SimplePatternMatcher.match

    def fail_inside() -> None:
        with fast_matching():
            assert SimplePatternMatcher.match is not before
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_inside()
    assert SimplePatternMatcher.match is before


def test_upstream_is_still_quadratic(identifiers: _IdentifierCount) -> None:
    """If this fails, onnxscript has mended its matcher: drop fast_matching.py."""
    counts = []
    for depth in (4, 8):
        identifiers.calls = 0
        _convert(depth)
        counts.append(identifiers.calls)
    assert counts[1] > 3 * counts[0]


def test_matching_is_linear_with_the_patch(identifiers: _IdentifierCount) -> None:
    counts = []
    for depth in (4, 8):
        identifiers.calls = 0
        with fast_matching():
            _convert(depth)
        counts.append(identifiers.calls)
    assert counts[1] < 2.5 * counts[0]
