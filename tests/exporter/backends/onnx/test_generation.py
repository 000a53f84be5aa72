"""Prefill and decode of a tiny Qwen3 in ONNX Runtime, against the eager model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnx_ir
import onnxruntime
import pytest
import torch
from transformers import Qwen3ForCausalLM
from transformers.exporters.exporter_onnx import OnnxConfig, OnnxExporter

from exporter.backends.tiny_models import (
    HEAD_DIM,
    KV_HEADS,
    LAYERS,
    export,
    generation_spec,
    greedy,
    left_padded,
    positions_of,
    tiny_qwen3,
)
from model_export.exporter.backends.onnx.serialise import WEIGHTS_FILE
from model_export.exporter.components import build_components
from model_export.exporter.leaks import build_paths, check_no_leak
from model_export.manifest import ComponentRecord

_TRACED, _OTHER = (2, 8, 3), (3, 13, 5)


@dataclass(frozen=True)
class Exported:
    model: Qwen3ForCausalLM
    folder: Path
    records: dict[str, ComponentRecord]

    def session(self, component: str) -> onnxruntime.InferenceSession:
        path = self.folder / self.records[component].file
        return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    folder = tmp_path_factory.mktemp("qwen3")
    spec = generation_spec("onnx", {}, components=("prefill", "decode"))
    records = export(tiny_qwen3(), left_padded(*_TRACED), spec, folder)
    return Exported(tiny_qwen3(), folder, records)


@pytest.mark.parametrize("shape", [_TRACED, _OTHER])
def test_prefill_gives_the_eager_logits(exported: Exported, shape: tuple[int, int, int]) -> None:
    inputs = left_padded(*shape, seed=1)
    mask = inputs["attention_mask"]
    feeds = {**inputs, "position_ids": positions_of(mask)}
    (logits,) = exported.session("prefill").run(
        ["logits"], {name: tensor.numpy() for name, tensor in feeds.items()}
    )
    with torch.no_grad():
        expected = exported.model(**feeds).logits
    seen = mask.bool().numpy()
    np.testing.assert_allclose(logits[seen], expected.numpy()[seen], atol=1e-5)


@pytest.mark.parametrize("shape", [_TRACED, _OTHER])
def test_decode_alone_generates_the_eager_tokens(
    exported: Exported, shape: tuple[int, int, int]
) -> None:
    inputs = left_padded(*shape, seed=2)
    expected = greedy(exported.model, inputs, steps=6).numpy()
    session = exported.session("decode")
    batch = shape[0]
    ids, mask = inputs["input_ids"].numpy(), inputs["attention_mask"].numpy()
    positions = positions_of(inputs["attention_mask"]).numpy()
    cache = {
        f"cache.layers.{layer}.{part}": np.zeros((batch, KV_HEADS, 0, HEAD_DIM), np.float32)
        for layer in range(LAYERS)
        for part in ("keys", "values")
    }
    tokens = []
    for _ in range(expected.shape[1]):
        outputs = session.run(
            None,
            {
                "input_ids": ids,
                "attention_mask": mask,
                "position_ids": positions,
                **{f"input.{name}": array for name, array in cache.items()},
            },
        )
        named = dict(zip((o.name for o in session.get_outputs()), outputs, strict=True))
        cache = {name: named[f"output.{name}"] for name in cache}
        ids = named["logits"][:, -1:].argmax(-1)
        tokens.append(ids)
        mask = np.concatenate([mask, np.ones((batch, 1), np.int64)], axis=1)
        positions = positions[:, -1:] + 1
    np.testing.assert_array_equal(np.concatenate(tokens, axis=1), expected)


def test_components_share_one_weights_file(exported: Exported) -> None:
    assert {path.name for path in exported.folder.iterdir()} == {
        "prefill.onnx",
        "decode.onnx",
        WEIGHTS_FILE,
    }
    assert all(record.weights == (WEIGHTS_FILE,) for record in exported.records.values())
    places: dict[str, set[tuple[int, int]]] = {}
    for name, record in exported.records.items():
        model = onnx_ir.load(exported.folder / record.file)
        places[name] = {
            (tensor.offset, tensor.length)
            for value in model.graph.initializers.values()
            if isinstance(tensor := value.const_value, onnx_ir.ExternalTensor)
        }
        assert all(offset % 4096 == 0 for offset, _ in places[name])
    assert places["prefill"] == places["decode"]
    # Embedding and output projection are one tensor: no parameter but the tied one is left out.
    large = [p for p in exported.model.parameters() if p.numel() * 4 > 256]
    assert len(places["decode"]) == len({p.data_ptr() for p in large})
    end = max(offset + length for offset, length in places["decode"])
    assert (exported.folder / WEIGHTS_FILE).stat().st_size == end


def test_files_are_valid_and_hold_no_path_of_this_machine(exported: Exported) -> None:
    for record in exported.records.values():
        path = exported.folder / record.file
        onnx.checker.check_model(str(path), full_check=True)
        assert b".py" not in path.read_bytes()
    check_no_leak(exported.folder, build_paths(Path.cwd(), exported.folder))


def test_records_name_the_dynamic_dimensions(exported: Exported) -> None:
    record = exported.records["decode"]
    shapes = {tensor.name: tensor.shape for tensor in (*record.inputs, *record.outputs)}
    assert shapes["input_ids"] == ("batch", "sequence")
    assert shapes["logits"] == ("batch", "sequence", 256)
    past = ("batch", KV_HEADS, "past_sequence", HEAD_DIM)
    assert shapes["input.cache.layers.0.keys"] == past
    assert shapes["output.cache.layers.1.values"][2] == "past_sequence + sequence"
    assert {tensor.dtype for tensor in record.inputs[:3]} == {"int64"}
    session = exported.session("decode")
    assert [i.name for i in session.get_inputs()] == [i.name for i in record.inputs]
    assert [tuple(o.shape) for o in session.get_outputs()] == [o.shape for o in record.outputs]


@pytest.mark.parametrize("component", ["prefill", "decode"])
def test_onnx_runtime_fuses_norms_and_key_transposes(
    exported: Exported, component: str, tmp_path: Path
) -> None:
    path = exported.folder / exported.records[component].file
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    loaded = onnx.load(tmp_path / "optimized.onnx", load_external_data=False)
    operators = [node.op_type for node in loaded.graph.node]
    # Before attention, before the MLP, of queries and of keys; and the last.
    assert operators.count("SimplifiedLayerNormalization") == 4 * LAYERS + 1
    assert not {"Reciprocal", "Sqrt"} & set(operators)
    assert operators.count("FusedMatMul") == LAYERS
    # As the engine alone has them: a key's transpose in three dimensions, and a copy for each head.
    transposes = [node for node in loaded.graph.node if node.op_type == "Transpose"]
    assert [0, 2, 1] not in [list(node.attribute[0].ints) for node in transposes]
    assert "Unsqueeze" not in [
        node.op_type for node in loaded.graph.node if node.input and "cache" in node.input[0]
    ]


def test_the_engine_alone_has_neither() -> None:
    """When this fails, torch or transformers writes them like this: remove what mends them."""
    (decode,) = build_components(
        tiny_qwen3(), left_padded(*_TRACED), generation_spec("onnx", {}, components=("decode",))
    )
    config = OnnxConfig(dynamic=True)
    program, _ = OnnxExporter().export_program(decode.module, decode.inputs, config)
    operators = [node.op_type for node in program.graph]
    assert operators.count("Reciprocal") == 4 * LAYERS + 1
    permutations = [
        list(node.attributes.get_ints("perm", []))
        for node in program.graph
        if node.op_type == "Transpose"
    ]
    assert permutations.count([0, 2, 1]) == LAYERS
    assert [0, 1, 3, 2] not in permutations
