"""Each key of `config` changes what it says it changes; bounds are what the record says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from executorch.exir import ExecutorchBackendConfig, to_edge
from executorch.runtime import Runtime
from torch.export import Dim
from transformers.exporters import ExecutorchConfig, ExecutorchExporter
from transformers.exporters.exporter_executorch import _dim_floor

from exporter.backends.tiny_models import make_spec
from model_export.exporter.backends.executorch import BACKEND
from model_export.exporter.backends.executorch.backend import ExecutorchComponent
from model_export.exporter.backends.executorch.bounds import DefaultBounds, bound_every_dimension
from model_export.exporter.backends.executorch.engine import write
from model_export.exporter.backends.executorch.flatc import use_packaged_flatc
from model_export.exporter.errors import ExportError

COLUMNS = {"dynamic_shapes": {"values": {"1": "columns"}}}


class Doubled(torch.nn.Module):
    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return values * 2


class Branching(torch.nn.Module):
    """Decides by whether its number of columns is even what to compute."""

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        if values.shape[1] % 2 != 0:
            return values
        return values * 2


class Undecided(torch.nn.Module):
    """Holds a call that Dynamo won't trace."""

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        return values * 2


class Counting(torch.nn.Module):
    """Keeps a running sum of 1000 floats inside itself."""

    seen: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(1000))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        self.seen.add_(values.sum())
        return self.seen.sum() + values


def _export(module: torch.nn.Module, config: dict[str, Any], **fields: Any) -> ExecutorchComponent:
    spec = make_spec("executorch", config, **fields)
    return BACKEND.export("model", module, {"values": torch.zeros(2, 8)}, spec)


def _run(component: ExecutorchComponent, values: torch.Tensor) -> torch.Tensor:
    program = Runtime.get().load_program(component.program.buffer)
    return program.load_method("forward").execute([values])[0]


def _metadata(component: ExecutorchComponent) -> Any:
    return Runtime.get().load_program(component.program.buffer).load_method("forward").metadata


def _arena(component: ExecutorchComponent) -> int:
    return sum(component.program.executorch_program.execution_plan[0].non_const_buffer_sizes)


def test_without_dynamic_the_traced_shape_is_the_only_one() -> None:
    component = _export(Doubled(), {})
    assert component.signature.bounds == {}
    assert torch.equal(_run(component, torch.ones(2, 8)), torch.full((2, 8), 2.0))
    with pytest.raises(RuntimeError):
        _run(component, torch.ones(2, 9))


def test_dynamic_bounds_every_dimension() -> None:
    component = _export(Doubled(), {"dynamic": True})
    assert component.signature.bounds == {"values.0": (0, 4), "values.1": (0, 32)}
    assert _run(component, torch.ones(4, 32)).shape == (4, 32)
    with pytest.raises(RuntimeError):
        _run(component, torch.ones(4, 33))


def test_vectors_of_tokens_are_bounded_as_tokens_are() -> None:
    bounds = DefaultBounds(batch=4, traced_batch=2, sequence=256, fixed=frozenset())
    inputs = {"inputs_embeds": torch.zeros(2, 8, 16), "pixel_values": torch.zeros(2, 8, 16)}
    shapes = {name: {0: Dim.AUTO, 1: Dim.AUTO} for name in inputs}
    tree = bound_every_dimension(shapes, inputs, bounds)
    assert [tree["inputs_embeds"][axis].max for axis in (0, 1)] == [4, 256]
    assert [tree["pixel_values"][axis].max for axis in (0, 1)] == [4, 32]


def test_given_bounds_are_planned_however_large() -> None:
    component = _export(Doubled(), COLUMNS, dims={"columns": (2, 3000)})
    assert component.signature.inputs[0].shape == (2, "columns")
    assert component.signature.bounds == {"columns": (2, 3000)}
    assert _run(component, torch.ones(2, 3000)).shape == (2, 3000)


def test_engine_still_plans_for_less_than_the_given_bound() -> None:
    """Once this fails, `upper_bounds.py` can go (transformers 5.24.0)."""
    use_packaged_flatc()
    shapes = {"values": {1: torch.export.Dim("columns", min=2, max=3000)}}
    doubled: Any = Doubled()
    program, _ = ExecutorchExporter().export_program(
        doubled, {"values": torch.zeros(2, 8)}, ExecutorchConfig(dynamic_shapes=shapes)
    )
    method = Runtime.get().load_program(program.buffer).load_method("forward")
    with pytest.raises(RuntimeError):
        method.execute([torch.ones(2, 3000)])


def test_engine_still_caps_unbounded_dimensions() -> None:
    """Once this fails, look whether `bounds.py` is still needed (transformers 5.24.0)."""
    assert _dim_floor(5) == 64


@pytest.mark.parametrize(
    ("key", "inputs_planned", "outputs_planned"),
    [
        ("alloc_graph_input", False, True),
        ("alloc_graph_output", True, False),
    ],
)
def test_memory_of_inputs_and_outputs_is_left_to_the_caller(
    key: str, inputs_planned: bool, outputs_planned: bool
) -> None:
    metadata = _metadata(_export(Doubled(), {key: False}))
    assert metadata.input_tensor_meta(0).is_memory_planned() is inputs_planned
    assert metadata.output_tensor_meta(0).is_memory_planned() is outputs_planned


def test_buffers_of_the_model_itself_have_to_be_planned() -> None:
    assert _arena(_export(Counting(), {})) >= 4000
    with pytest.raises(ExportError, match="config\\['alloc_mutable_buffers'\\]"):
        _export(Counting(), {"alloc_mutable_buffers": False})


def test_unprovable_guard_is_an_error_unless_deferred() -> None:
    with pytest.raises(ExportError, match="config\\['dynamic_shapes'\\]"):
        _export(Branching(), COLUMNS, dims={"columns": (2, 16)})
    deferred = {**COLUMNS, "prefer_deferred_runtime_asserts_over_guards": True}
    component = _export(Branching(), deferred, dims={"columns": (2, 16)})
    assert _run(component, torch.ones(2, 12)).sum() == 48


def test_strict_refuses_what_dynamo_refuses() -> None:
    assert _run(_export(Undecided(), {"strict": False}), torch.ones(2, 8)).sum() == 32
    with pytest.raises(ExportError, match="config\\['strict'\\]"):
        _export(Undecided(), {"strict": True})


def test_file_is_written_without_flatc_on_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    component = _export(Doubled(), {})
    (record,) = BACKEND.save({"model": component}, tmp_path, make_spec("executorch", {}))
    assert (tmp_path / record.file).stat().st_size > 0


class Weighted(torch.nn.Module):
    """Has a weight that no delegate takes: an embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(16, 8)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.table(ids)
        return found


def test_weights_outside_of_a_program_are_written_with_it(tmp_path: Path) -> None:
    # As the CUDA delegate has them, which is lowered to on a GPU alone.
    use_packaged_flatc()
    module = Weighted()
    traced = torch.export.export(module, (torch.tensor([1, 2]),))
    program = to_edge(traced).to_executorch(ExecutorchBackendConfig(external_constants=True))
    files = [write(program, tmp_path / f"{name}.pte") for name in ("prefill", "decode")]
    assert [len(names) for names in files] == [1, 1]
    (prefill,), (decode,) = files
    assert prefill.startswith("prefill.") and decode.startswith("decode.")
    weight = module.table.weight.detach().numpy().tobytes()
    for name in ("prefill", "decode"):
        assert weight not in (tmp_path / f"{name}.pte").read_bytes()
    assert all(weight in (tmp_path / name).read_bytes() for (name,) in files)
    assert {path.name for path in tmp_path.iterdir()} == {
        "prefill.pte",
        "decode.pte",
        prefill,
        decode,
    }
