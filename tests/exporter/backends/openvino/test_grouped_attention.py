"""Attention with shared keys and values, as OpenVINO's CPU plugin runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.backends.openvino.exported import Exported
from exporter.backends.tiny_models import (
    LAYERS,
    export,
    generation_spec,
    left_padded,
    tiny_qwen3,
)
from model_export.exporter.backends.openvino import backend

_FUSED = "ScaledDotProductAttention"


def _operations(exported: Exported) -> list[str]:
    """What a compiled decode component consists of."""
    operations = exported.compiled("decode").get_runtime_model().get_ordered_ops()
    return [operation.get_rt_info()["layerType"].astype(str) for operation in operations]


def test_every_layer_is_one_operation_with_its_state(stateful: Exported) -> None:
    operations = _operations(stateful)
    assert operations.count(_FUSED) == LAYERS
    assert "Softmax" not in operations


def test_the_engine_alone_is_not_fused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When this fails, transformers or OpenVINO has mended it: remove `grouped_attention`."""
    monkeypatch.setattr(backend, "share_heads", lambda model: 0)
    spec = generation_spec("openvino", {}, components=("decode",))
    records = export(tiny_qwen3(), left_padded(2, 8, 3), spec, tmp_path)
    assert _operations(Exported(tiny_qwen3(), tmp_path, records)).count(_FUSED) == 0


@pytest.mark.parametrize(("fixture", "name"), [("exported", "prefill"), ("stateless", "decode")])
def test_a_graph_without_state_has_the_broadcasts_too(
    fixture: str, name: str, request: pytest.FixtureRequest
) -> None:
    exported: Exported = request.getfixturevalue(fixture)
    modes = [
        operation.get_attributes()["mode"]
        for operation in exported.read(name).get_ops()
        if operation.get_type_name() == "Broadcast"
    ]
    assert modes.count("bidirectional") == 2 * LAYERS
