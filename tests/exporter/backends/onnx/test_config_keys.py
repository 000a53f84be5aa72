"""Every key of an ONNX config does what it says; each test fails if the key is ignored."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir
import onnxruntime
import pytest
import torch
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented
from onnxscript.version_converter._version_converter import (
    SUPPORTED_MAX_ONNX_OPSET,
    SUPPORTED_MIN_ONNX_OPSET,
)
from torch._dynamo.exc import Unsupported

from exporter.backends.tiny_models import (
    export,
    generation_spec,
    left_padded,
    make_spec,
    tiny_bert,
)
from model_export.exporter.backends.onnx import BACKEND
from model_export.exporter.backends.onnx.backend import HIGHEST_OPSET, LOWEST_OPSET
from model_export.exporter.backends.onnx.serialise import WEIGHTS_FILE, write_programs
from model_export.exporter.errors import ExportError
from model_export.manifest import ComponentRecord
from model_export.verifier.structure.onnx import inspect
from verifier.wrong_modules import one_layer_decoder

_TRACED, _OTHER = (2, 8, 3), (3, 13, 5)


def _export(**config: Any) -> onnx_ir.Model:
    spec = make_spec("onnx", config)
    return BACKEND.export("model", tiny_bert(), left_padded(*_TRACED), spec)


@pytest.fixture(scope="module")
def dynamic_model() -> onnx_ir.Model:
    return _export(dynamic=True)


def _save(
    model: onnx_ir.Model, folder: Path, **config: Any
) -> tuple[ComponentRecord, onnx.ModelProto]:
    spec = make_spec("onnx", {"dynamic": True, **config})
    (record,) = BACKEND.save({"model": model}, folder, spec)
    return record, onnx.load(folder / record.file, load_external_data=False)


def _session(path: Path) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


def _feeds(shape: tuple[int, int, int]) -> dict[str, np.ndarray]:
    return {name: tensor.numpy() for name, tensor in left_padded(*shape, seed=1).items()}


@pytest.mark.parametrize("external_data", [True, False])
def test_external_data(dynamic_model: onnx_ir.Model, tmp_path: Path, external_data: bool) -> None:
    record, _ = _save(dynamic_model, tmp_path, external_data=external_data)
    assert record.weights == ((WEIGHTS_FILE,) if external_data else ())
    assert {file.name for file in tmp_path.iterdir()} == {"model.onnx", *record.weights}
    session = _session(tmp_path / "model.onnx")
    for shape in (_TRACED, _OTHER):
        (hidden, *_) = session.run(None, _feeds(shape))
        with torch.no_grad():
            expected = tiny_bert()(**left_padded(*shape, seed=1)).last_hidden_state
        seen = _feeds(shape)["attention_mask"].astype(bool)
        np.testing.assert_allclose(hidden[seen], expected.numpy()[seen], atol=1e-5)


def test_single_file_over_two_gib_is_refused(tmp_path: Path) -> None:
    shape = onnx_ir.Shape([2**29])

    def never_read() -> onnx_ir.Tensor:
        raise AssertionError("the weights must not be read before the size is checked")

    weight = onnx_ir.Value(
        name="w",
        const_value=onnx_ir.LazyTensor(never_read, onnx_ir.DataType.FLOAT, shape, name="w"),
    )
    graph = onnx_ir.Graph([], [], nodes=[], initializers=[weight], opset_imports={"": 20})
    model = onnx_ir.Model(graph, ir_version=10)
    spec = make_spec("onnx", {"external_data": False})
    with pytest.raises(ExportError, match=r"external_data.*2\.0 GiB.*ends at 2 GiB"):
        write_programs({"model": model}, tmp_path, spec)
    assert list(tmp_path.iterdir()) == []


def test_export_params_false_leaves_the_initializers_out(
    dynamic_model: onnx_ir.Model, tmp_path: Path
) -> None:
    expected = len(dynamic_model.graph.initializers)
    record, proto = _save(dynamic_model, tmp_path, export_params=False)
    assert (len(proto.graph.initializer), record.weights) == (0, ())
    assert [value.name for value in proto.graph.input] == ["input_ids", "attention_mask"]
    assert len(dynamic_model.graph.initializers) == expected > 0
    assert all(v.const_value is not None for v in dynamic_model.graph.initializers.values())


def test_export_params_false_can_list_them_as_inputs(
    dynamic_model: onnx_ir.Model, tmp_path: Path
) -> None:
    record, proto = _save(
        dynamic_model, tmp_path, export_params=False, keep_initializers_as_inputs=True
    )
    assert len(proto.graph.initializer) == 0
    names = [tensor.name for tensor in record.inputs]
    assert names == ["input_ids", "attention_mask", *dynamic_model.graph.initializers]
    feeds = _feeds(_TRACED)
    for name, value in dynamic_model.graph.initializers.items():
        feeds[name] = np.array(value.const_value.numpy(), order="C")
    without = _session(tmp_path / "model.onnx").run(None, feeds)
    _save(dynamic_model, tmp_path)
    np.testing.assert_array_equal(
        without[0], _session(tmp_path / "model.onnx").run(None, _feeds(_TRACED))[0]
    )


def test_initializers_kept_as_inputs_can_be_replaced(
    dynamic_model: onnx_ir.Model, tmp_path: Path
) -> None:
    record, proto = _save(dynamic_model, tmp_path, keep_initializers_as_inputs=True)
    listed = {value.name for value in proto.graph.input}
    assert listed == {"input_ids", "attention_mask", *dynamic_model.graph.initializers}
    assert [tensor.name for tensor in record.inputs] == ["input_ids", "attention_mask"]
    name = "embeddings.word_embeddings.weight"
    shape = dynamic_model.graph.initializers[name].shape
    session = _session(tmp_path / "model.onnx")
    zeroed = {**_feeds(_TRACED), name: np.zeros(tuple(shape), np.float32)}
    assert not np.allclose(session.run(None, zeroed)[0], session.run(None, _feeds(_TRACED))[0])


def test_static_by_default() -> None:
    model = _export()
    assert [list(value.shape) for value in model.graph.inputs] == [[2, 8], [2, 8]]


def test_opset_version_and_optimize(dynamic_model: onnx_ir.Model, tmp_path: Path) -> None:
    model = _export(dynamic=True, opset_version=19, optimize=False)
    _, proto = _save(model, tmp_path)
    assert {entry.domain: entry.version for entry in proto.opset_import}[""] == 19
    assert dynamic_model.opset_imports[""] != 19
    optimised = Counter(node.op_type for node in dynamic_model.graph)
    plain = Counter(node.op_type for node in model.graph)
    assert plain["Transpose"] > optimised["Transpose"]  # Weights are transposed while it runs.


@pytest.mark.parametrize("opset", [LOWEST_OPSET, HIGHEST_OPSET])
@pytest.mark.parametrize("optimize", [True, False])
def test_lowest_and_highest_opset_run(tmp_path: Path, opset: int, optimize: bool) -> None:
    model = _export(dynamic=True, opset_version=opset, optimize=optimize)
    _, proto = _save(model, tmp_path)
    assert {entry.domain: entry.version for entry in proto.opset_import}[""] == opset
    (hidden, *_) = _session(tmp_path / "model.onnx").run(None, _feeds(_OTHER))
    with torch.no_grad():
        expected = tiny_bert()(**left_padded(*_OTHER, seed=1)).last_hidden_state
    seen = _feeds(_OTHER)["attention_mask"].astype(bool)
    np.testing.assert_allclose(hidden[seen], expected.numpy()[seen], atol=1e-5)


@pytest.mark.parametrize("opset", [17, 26])
def test_opset_outside_the_range_is_refused(opset: int) -> None:
    with pytest.raises(ExportError, match=rf"opset_version.* is {opset}.*from 18 to 25"):
        BACKEND.check(make_spec("onnx", {"opset_version": opset}))


def test_range_is_that_of_onnxscripts_converter() -> None:
    """If this fails, onnxscript converts to other opsets: adapt LOWEST_OPSET and HIGHEST_OPSET."""
    assert (SUPPORTED_MIN_ONNX_OPSET, SUPPORTED_MAX_ONNX_OPSET) == (LOWEST_OPSET, HIGHEST_OPSET)


def test_ort_fusions_bring_in_runtime_operators(tmp_path: Path) -> None:
    model = _export(dynamic=True, ort_fusions="cpu")
    assert "com.microsoft" in {node.domain for node in model.graph}
    _save(model, tmp_path)
    assert _session(tmp_path / "model.onnx").run(None, _feeds(_OTHER))[0].shape == (3, 13, 32)


@pytest.mark.parametrize(
    ("provider", "dtype"),
    [
        ("cpu", "float32"),
        ("cpu", "float16"),
        ("cuda", "float32"),
        ("cuda", "float16"),
        ("webgpu", "float16"),
        ("dml", "float16"),
    ],
)
def test_fusions_for_each_provider_run_in_these_dtypes(
    tmp_path: Path, provider: str, dtype: str
) -> None:
    """On this CPU, which has the operators that they fuse into."""
    logits = _fused(tmp_path, provider, dtype)
    with torch.no_grad():
        expected = one_layer_decoder()(**left_padded(*_OTHER, seed=1)).logits.numpy()
    seen = left_padded(*_OTHER, seed=1)["attention_mask"].bool().numpy()
    limit = 1e-4 if dtype == "float32" else 2e-2
    np.testing.assert_allclose(logits[seen], expected[seen], atol=limit)


@pytest.mark.parametrize("provider", [None, "cpu"])
def test_no_bfloat16_on_a_cpu(tmp_path: Path, provider: str | None) -> None:
    """If this fails, ONNX Runtime runs it: take the pair out of plugin/dtype_checks.py and
    verification_checks.py, and out of the table in docs/target.md."""
    with pytest.raises(NotImplemented, match="Could not find an implementation for M"):
        _fused(tmp_path, provider, "bfloat16")


def _fused(folder: Path, provider: str | None, dtype: str) -> np.ndarray:
    """What a tiny decoder computes in `dtype`, fused for a provider, as float32."""
    spec = make_spec("onnx", {"dynamic": True, "ort_fusions": provider}, dtype=dtype)
    model = one_layer_decoder().to(getattr(torch, dtype))
    record = export(model, left_padded(*_TRACED), spec, folder)["model"]
    if provider is not None:
        graph = onnx.load(folder / record.file, load_external_data=False).graph
        assert any(node.domain == "com.microsoft" for node in graph.node)
    logits: np.ndarray = _session(folder / record.file).run(["logits"], _feeds(_OTHER))[0]
    return logits.astype(np.float32)


def test_fused_decoders_pass_the_verifiers_look_at_operators(tmp_path: Path) -> None:
    """ONNX's checker knows no SimplifiedLayerNormalization; if it did, drop the exceptions."""
    spec = generation_spec("onnx", {"ort_fusions": "cpu"}, components=("decode",))
    record = export(one_layer_decoder(), left_padded(2, 8, 3), spec, tmp_path)["decode"]
    with pytest.raises(onnx.checker.ValidationError, match="SimplifiedLayerNormalization"):
        onnx.checker.check_model(str(tmp_path / record.file))
    fused = inspect(tmp_path, record, asdict(spec))
    assert set(fused.flaws.values()) == {None}
    plain = inspect(tmp_path, record, asdict(generation_spec("onnx", {})))
    assert "SimplifiedLayerNormalization" in str(plain.flaws["operators"])


def test_dynamic_shapes_and_trace_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original, seen = torch.export.export, {}

    def recording(*args: Any, **kwargs: Any) -> torch.export.ExportedProgram:
        seen.update(kwargs)
        return original(*args, **kwargs)

    monkeypatch.setattr(torch.export, "export", recording)
    axes = {"0": "rows"}
    spec = make_spec(
        "onnx",
        {
            "dynamic_shapes": {"input_ids": axes, "attention_mask": axes},
            "prefer_deferred_runtime_asserts_over_guards": True,
        },
        dims={"rows": (2, 16)},
    )
    model = BACKEND.export("model", tiny_bert(), left_padded(*_TRACED), spec)
    (record,) = BACKEND.save({"model": model}, tmp_path, spec)
    assert seen["prefer_deferred_runtime_asserts_over_guards"] is True
    rows = seen["dynamic_shapes"]["input_ids"][0]
    assert (rows.min, rows.max) == (2, 16)
    proto = onnx.load(tmp_path / record.file, load_external_data=False)
    first, second = proto.graph.input[0].type.tensor_type.shape.dim
    assert (first.dim_param, second.dim_value) == ("rows", 8)
    assert record.outputs[0].shape == ("rows", 8, 32)
    assert record.bounds == {"rows": (2, 16)}


def test_strict_is_refused_at_once() -> None:
    with pytest.raises(ExportError, match=r"config\['strict'\].*can't do for onnx"):
        BACKEND.check(make_spec("onnx", {"strict": True}))


def test_engine_still_cannot_trace_strictly() -> None:
    """If this fails, strict exports work: drop strict_mode.py."""
    spec = make_spec("onnx", {"strict": True})
    with pytest.raises(Unsupported, match=r"call_id\(\)"):
        BACKEND.export("model", tiny_bert(), left_padded(*_TRACED), spec)
