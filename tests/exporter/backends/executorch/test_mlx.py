"""Lowering for MLX, which any platform does; only Apple Silicon runs what comes of it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import executorch
import pytest
import torch
from executorch.runtime import Runtime
from transformers import Qwen3ForCausalLM
from transformers.exporters import ExecutorchConfig, ExecutorchExporter

from exporter.backends.executorch.mlx_instructions import MlxInstructions, lowered_graphs
from exporter.backends.executorch.one_layer import one_layer_qwen3
from exporter.backends.tiny_models import (
    export,
    generation_spec,
    left_padded,
    make_spec,
    positions_of,
)
from exporter.backends.two_builds import build_twice
from model_export.exporter.backends.executorch import BACKEND
from model_export.exporter.backends.executorch.flatc import use_packaged_flatc
from model_export.exporter.backends.executorch.mlx_gather import dynamic_gathers
from model_export.exporter.backends.executorch.mlx_serializers import (
    has_generated_files,
    use_generated_serializers,
    wheel_folder,
)
from model_export.exporter.errors import ExportError
from model_export.manifest import ComponentRecord
from model_export.runtime.graphs.pte_delegates import Delegation, read_delegation

_MLX = generation_spec("executorch", {"backend": "mlx"})
_DIM = torch.export.Dim
_SHAPES = {"table": {0: _DIM("rows", max=16), 1: _DIM("columns", max=32)}, "row": None}


class TwoIndices(torch.nn.Module):
    """Reads a table at pairs of indices, as transformers reads an attention mask."""

    def forward(self, table: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
        column = torch.arange(table.shape[1])
        return table[row[:, None], column[None, :]] * 2


def _lowered_sizes() -> list[Any]:
    """The largest sizes of what `TwoIndices` takes and gives, as the engine lowers it for MLX."""
    use_packaged_flatc()
    use_generated_serializers()
    module: Any = TwoIndices()
    inputs = {"table": torch.rand(4, 8), "row": torch.tensor([2, 0, 3])}
    config = ExecutorchConfig(backend="mlx", dynamic_shapes=_SHAPES)
    program, _ = ExecutorchExporter().export_program(module, inputs, config)
    metadata = Runtime.get().load_program(program.buffer).metadata("forward")
    return [
        list(metadata.input_tensor_meta(0).sizes()),
        list(metadata.output_tensor_meta(0).sizes()),
    ]


@dataclass(frozen=True)
class Lowered:
    """A decoder of one layer, lowered: its model, its file, what is recorded of it, its graph."""

    model: Qwen3ForCausalLM
    file: Path
    record: ComponentRecord
    graph: Any


@pytest.fixture(scope="module")
def decode(tmp_path_factory: pytest.TempPathFactory) -> Lowered:
    folder = tmp_path_factory.mktemp("decode")
    model = one_layer_qwen3()
    BACKEND.check(_MLX)
    with lowered_graphs() as graphs:
        record = export(model, left_padded(2, 8, 3), _MLX, folder)["decode"]
    return Lowered(model, folder / record.file, record, graphs[-1])


def test_a_decoder_is_one_delegate_with_nothing_left_over(decode: Lowered) -> None:
    assert read_delegation(decode.file) == Delegation(("MLXBackend",), ())


def test_its_dimensions_stay_dynamic(decode: Lowered) -> None:
    metadata = Runtime.get().load_program(decode.file).metadata("forward")
    sizes = [list(metadata.input_tensor_meta(place).sizes()) for place in range(5)]
    tokens, cache = [4, 256], [4, 2, 256, 16]
    assert sizes == [tokens, tokens, tokens, cache, cache]
    assert [tensor.name for tensor in decode.record.inputs] == [
        "input_ids",
        "attention_mask",
        "position_ids",
        "input.cache.layers.0.keys",
        "input.cache.layers.0.values",
    ]
    assert list(metadata.output_tensor_meta(0).sizes()) == [4, 256, 256]


def test_its_instructions_are_the_model_at_sizes_never_traced(decode: Lowered) -> None:
    instructions = MlxInstructions(decode.graph, decode.file)
    prompt = left_padded(3, 13, 4, seed=1)
    mask, ids = prompt["attention_mask"], prompt["input_ids"]
    with torch.no_grad():
        expected = decode.model(**prompt).logits
    positions = positions_of(mask)
    cache = [torch.zeros(3, 2, 0, 16), torch.zeros(3, 2, 0, 16)]
    # The prompt in three calls: each sees what the ones before it left in the cache.
    for start, stop in ((0, 5), (5, 12), (12, 13)):
        new = slice(start, stop)
        logits, *cache = instructions.run([ids[:, new], mask[:, :stop], positions[:, new], *cache])
        kept = mask[:, new] == 1
        torch.testing.assert_close(logits[kept], expected[:, new][kept], atol=1e-5, rtol=0)
    assert [tuple(tensor.shape) for tensor in cache] == [(3, 2, 13, 16)] * 2


def test_what_two_indices_read_is_dynamic() -> None:
    use_generated_serializers()
    with dynamic_gathers():
        assert _lowered_sizes() == [[16, 32], [3, 32]]


def test_mlx_still_freezes_what_it_gathers() -> None:
    """Once this fails, `mlx_gather.py` can go (executorch 1.3.1)."""
    assert _lowered_sizes() == [[16, 8], [3, 8]]


@pytest.mark.skipif(sys.platform != "linux", reason="the wheels of Linux are meant")
def test_wheel_still_lacks_the_generated_files() -> None:
    """Once this fails, `mlx_serializers.py` can go (executorch 1.3.1, Linux)."""
    folder = Path(executorch.__path__[0], "backends", "mlx")
    assert folder.is_dir() and not has_generated_files(folder)


@pytest.mark.skipif(sys.platform != "linux", reason="the wheels of Linux are meant")
def test_the_wheel_is_left_as_it_is() -> None:
    use_generated_serializers()
    folder = wheel_folder()
    import executorch.backends.mlx as package

    assert folder is not None and has_generated_files(folder)
    assert Path(str(package.__file__)).parent == folder
    assert Path(executorch.__path__[0]) not in folder.parents


def test_a_static_cache_is_refused_up_front() -> None:
    static = {"cache_implementation": "static", "max_cache_len": 16}
    spec = generation_spec("executorch", {"backend": "mlx"}, generation_config=static)
    with pytest.raises(ExportError, match=r"generation_config\['cache_implementation'\]` is 'st"):
        BACKEND.check(spec)


@pytest.mark.skipif(torch.cuda.is_available(), reason="has the GPU that this test is without")
def test_cuda_without_a_gpu_is_refused_up_front() -> None:
    with pytest.raises(ExportError, match=r"config\['backend'\]` is 'cuda', and torch finds no"):
        BACKEND.check(make_spec("executorch", {"backend": "cuda"}))


def test_mlx_still_sorts_by_address() -> None:
    """Once this fails, `mlx_order.py` can go (executorch 1.3.1)."""
    use_generated_serializers()
    from executorch.backends.mlx.builder.program_builder import MLXProgramBuilder
    from executorch.backends.mlx.builder.slot_manager import SlotManager

    slots = SlotManager()
    slots.make_constant_slot("weight")
    builder: Any = SimpleNamespace(slot_manager=slots, _tid_slot_map=[], _vid_slot_map=[])
    used, _, _ = MLXProgramBuilder._collect_used_slots(builder)
    slot = slots.make_constant_slot("another")
    assert isinstance(used, set) and hash(slot) == id(slot)


def test_two_builds_are_equal(tmp_path: Path) -> None:
    one, another = build_twice(one_layer_qwen3(), _MLX, tmp_path)
    assert {file.path for file in one} > {"decode.pte", "manifest.copy.json"}
    assert one == another
