"""The same spec gives the same bytes wherever it is built, and no trace of the build."""

from __future__ import annotations

from pathlib import Path

import torch

from exporter.backends.tiny_models import generation_spec, tiny_qwen3
from exporter.backends.two_builds import build_twice
from model_export.exporter.backends.dynamo.portable import remove_build_traces
from model_export.plugin.quantizer_checks import check_quantizer


def test_two_builds_are_equal(tmp_path: Path) -> None:
    """Of a graph in floats, and of one that is quantized by what it computes."""
    spec = generation_spec(
        "dynamo",
        {},
        components=("prefill", "decode"),
        quantizer=check_quantizer({"decode": {"type": "PT2EQuantizer"}}),
    )
    one, another = build_twice(tiny_qwen3(), spec, tmp_path)
    assert {file.path for file in one} > {"prefill.pt2", "decode.pt2", "manifest.copy.json"}
    assert one == another


def test_torch_still_records_paths_and_the_pass_removes_them() -> None:
    """Once the first half fails, `remove_build_traces` can go (torch 2.12.0)."""
    program = torch.export.export(torch.nn.Linear(2, 2), (torch.zeros(1, 2),))
    calls = [node for node in program.graph.nodes if node.op == "call_function"]
    assert any(".py" in node.meta["stack_trace"] for node in calls)
    remove_build_traces(program)
    assert not any({"stack_trace", "from_node"} & node.meta.keys() for node in program.graph.nodes)
