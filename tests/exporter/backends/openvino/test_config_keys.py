"""Every key of an OpenVINO config does what it says; each test fails if the key is ignored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import openvino
import pytest
import torch
from torch._dynamo.exc import Unsupported

from exporter.backends.openvino.exported import Exported
from exporter.backends.tiny_models import (
    export,
    generation_spec,
    left_padded,
    make_spec,
    tiny_bert,
)
from model_export.exporter.backends.openvino import BACKEND
from model_export.exporter.errors import ExportError

_TRACED, _OTHER = (2, 8, 3), (3, 13, 5)


def _export(folder: Path, **config: Any) -> Path:
    """The graph of a tiny BERT exported into `folder`."""
    spec = make_spec("openvino", config)
    record = export(tiny_bert(), left_padded(*_TRACED), spec, folder)["model"]
    assert (record.file, record.weights) == ("openvino_model.xml", ("openvino_model.bin",))
    return folder / record.file


def _run(xml: Path, shape: tuple[int, int, int]) -> np.ndarray:
    inputs = left_padded(*shape, seed=1)
    # Some CPUs would compute in bfloat16.
    compiled = openvino.Core().compile_model(xml, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return compiled({name: tensor.numpy() for name, tensor in inputs.items()})[0]


def test_dynamic_and_compress_to_fp16(tmp_path: Path) -> None:
    full = _export(tmp_path / "full", dynamic=True)
    half = _export(tmp_path / "half", dynamic=True, compress_to_fp16=True)
    for shape in (_TRACED, _OTHER):
        inputs = left_padded(*shape, seed=1)
        with torch.no_grad():
            expected = tiny_bert()(**inputs).last_hidden_state.numpy()
        seen = inputs["attention_mask"].bool().numpy()
        np.testing.assert_allclose(_run(full, shape)[seen], expected[seen], atol=1e-4)
        np.testing.assert_allclose(_run(half, shape)[seen], expected[seen], atol=2e-2)
    sizes = [xml.with_suffix(".bin").stat().st_size for xml in (full, half)]
    assert sizes[1] < 0.55 * sizes[0]


def test_stateful_false_passes_the_cache_through_ports(
    stateful: Exported, stateless: Exported
) -> None:
    names = []
    for exported, variables in ((stateful, 4), (stateless, 0)):
        assert len(exported.read("decode").get_variables()) == variables
        names.append({tensor.name for tensor in exported.records["decode"].inputs})
    assert "beam_idx" in names[0]
    assert names[1] - names[0] == {
        f"input.cache.layers.{layer}.{part}" for layer in (0, 1) for part in ("keys", "values")
    }


def test_static_by_default_and_dynamic_shapes_and_trace_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    static = openvino.Core().read_model(_export(tmp_path / "static"))
    assert [str(port.get_partial_shape()) for port in static.inputs] == ["[2,8]", "[2,8]"]

    original, seen = torch.export.export, {}

    def recording(*args: Any, **kwargs: Any) -> torch.export.ExportedProgram:
        seen.update(kwargs)
        return original(*args, **kwargs)

    monkeypatch.setattr(torch.export, "export", recording)
    axes = {"0": "rows"}
    spec = make_spec(
        "openvino",
        {
            "dynamic_shapes": {"input_ids": axes, "attention_mask": axes},
            "prefer_deferred_runtime_asserts_over_guards": True,
        },
        dims={"rows": (2, 16)},
    )
    program = BACKEND.export("model", tiny_bert(), left_padded(*_TRACED), spec)
    (record,) = BACKEND.save({"model": program}, tmp_path, spec)
    assert seen["prefer_deferred_runtime_asserts_over_guards"] is True
    assert [tensor.shape for tensor in record.inputs] == [("rows", 8), ("rows", 8)]
    assert record.bounds == {"rows": (2, 16)}
    model = openvino.Core().read_model(tmp_path / record.file)
    assert str(model.inputs[0].get_partial_shape()) == "[?,8]"


def test_strict_is_refused_at_once() -> None:
    with pytest.raises(ExportError, match=r"config\['strict'\].*can't do for openvino"):
        BACKEND.check(make_spec("openvino", {"strict": True}))


def test_engine_still_cannot_trace_strictly() -> None:
    """If this fails, strict exports work: drop strict_mode.py."""
    spec = make_spec("openvino", {"strict": True})
    with pytest.raises(Unsupported, match=r"call_id\(\)"):
        BACKEND.export("model", tiny_bert(), left_padded(*_TRACED), spec)


def test_a_static_cache_as_openvinos_own_state_is_refused() -> None:
    spec = generation_spec(
        "openvino", {}, generation_config={"cache_implementation": "static", "max_cache_len": 32}
    )
    with pytest.raises(ExportError, match="freeze how far a static cache is filled"):
        BACKEND.check(spec)
