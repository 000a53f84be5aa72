"""Sizes of recurrent models that the engine fixes are refused, and those alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import BertConfig, BertModel, MambaConfig, MambaForCausalLM

from model_export.exporter.errors import ExportError
from model_export.exporter.recurrent_models import check_sizes
from model_export.spec import ExportSpec


@pytest.fixture(scope="module")
def mamba() -> MambaForCausalLM:
    config = MambaConfig(hidden_size=16, state_size=4, num_hidden_layers=1, vocab_size=64)
    return MambaForCausalLM(config).eval()


def _spec(export_format: str = "onnx", dynamic: bool = True, **fields: Any) -> ExportSpec:
    return ExportSpec(export_format, {"dynamic": dynamic}, **fields)


def test_a_forward_pass_of_any_length_is_refused(mamba: MambaForCausalLM) -> None:
    with pytest.raises(ExportError, match="loop over its sequence"):
        check_sizes(mamba, _spec())
    check_sizes(mamba, _spec(dynamic=False))
    check_sizes(mamba, _spec(for_generation=True))
    named = {"dynamic": True, "dynamic_shapes": {"input_ids": {0: "batch"}}}
    check_sizes(mamba, ExportSpec("onnx", named))


def test_a_decode_step_of_any_batch_is_refused_for_executorch(mamba: MambaForCausalLM) -> None:
    with pytest.raises(ExportError, match="ExecuTorch"):
        check_sizes(mamba, _spec("executorch", for_generation=True))
    check_sizes(mamba, _spec("executorch", dynamic=False, for_generation=True))


def test_other_models_are_not_refused() -> None:
    config = BertConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    check_sizes(BertModel(config), _spec())


def test_upstream_still_fixes_the_length(mamba: MambaForCausalLM) -> None:
    """transformers 5.24.0. If this fails, the refusal of a forward pass is no longer needed."""
    ids = torch.zeros((2, 8), dtype=torch.int64)
    auto = {0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO}
    program = torch.export.export(
        mamba,
        (),
        {"input_ids": ids, "use_cache": False},
        dynamic_shapes={"input_ids": auto, "use_cache": None},
        strict=False,
    )
    (tokens,) = (
        node.meta["val"]
        for node in program.graph.nodes
        if node.op == "placeholder" and node.name == "input_ids"
    )
    assert tokens.shape[1] == 8
