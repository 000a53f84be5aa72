"""Each key of `config` changes what it says it changes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from exporter.backends.tiny_models import make_spec
from model_export.exporter.backends.dynamo import BACKEND
from model_export.exporter.errors import ExportError


class Doubled(torch.nn.Module):
    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return values * 2


class Paired(torch.nn.Module):
    """Takes an even number of columns only."""

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return values.view(values.shape[0], -1, 2)


class Undecided(torch.nn.Module):
    """Holds a call that Dynamo won't trace."""

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        return values * 2


def _forward(module: torch.nn.Module, config: dict[str, Any], **fields: Any) -> Any:
    spec = make_spec("dynamo", config, **fields)
    component = BACKEND.export("model", module, {"values": torch.zeros(2, 8)}, spec)
    return component.program.module()


def test_dynamic_frees_every_dimension() -> None:
    assert _forward(Doubled(), {"dynamic": True})(values=torch.ones(3, 5)).shape == (3, 5)


def test_without_dynamic_the_traced_shape_is_the_only_one() -> None:
    forward = _forward(Doubled(), {})
    assert forward(values=torch.ones(2, 8)).shape == (2, 8)
    with pytest.raises(AssertionError, match="values"):
        forward(values=torch.ones(3, 8))


def test_dynamic_shapes_free_and_bound_what_they_name() -> None:
    shapes = {"values": {"1": "columns"}}
    forward = _forward(
        Doubled(), {"dynamic": True, "dynamic_shapes": shapes}, dims={"columns": (2, 16)}
    )
    assert forward(values=torch.ones(2, 16)).shape == (2, 16)
    for refused in (torch.ones(2, 17), torch.ones(3, 8)):
        with pytest.raises(AssertionError):
            forward(values=refused)


def test_dynamic_shapes_reach_the_record() -> None:
    spec = make_spec(
        "dynamo", {"dynamic_shapes": {"values": {"1": "columns"}}}, dims={"columns": (2, 16)}
    )
    component = BACKEND.export("model", Doubled(), {"values": torch.zeros(2, 8)}, spec)
    assert component.signature.inputs[0].shape == (2, "columns")
    assert component.signature.bounds == {"columns": (2, 16)}


def test_unprovable_guard_is_an_error_unless_deferred() -> None:
    shapes = {"dynamic_shapes": {"values": {"1": "columns"}}}
    with pytest.raises(ExportError, match="config\\['dynamic_shapes'\\]"):
        _forward(Paired(), shapes, dims={"columns": (2, 16)})
    deferred = {**shapes, "prefer_deferred_runtime_asserts_over_guards": True}
    forward = _forward(Paired(), deferred, dims={"columns": (2, 16)})
    assert forward(values=torch.ones(2, 12)).shape == (2, 6, 2)
    with pytest.raises((AssertionError, RuntimeError)):
        forward(values=torch.ones(2, 11))


def test_strict_refuses_what_dynamo_refuses() -> None:
    assert _forward(Undecided(), {"strict": False})(values=torch.ones(2, 8)).sum() == 32
    with pytest.raises(ExportError, match="config\\['strict'\\]"):
        _forward(Undecided(), {"strict": True})
