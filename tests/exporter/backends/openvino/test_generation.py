"""Prefill and decode of a tiny Qwen3 in OpenVINO, against the eager model."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import openvino
import pytest
import torch

from exporter.backends.openvino.exported import Exported
from exporter.backends.tiny_models import (
    HEAD_DIM,
    KV_HEADS,
    LAYERS,
    VOCABULARY,
    export,
    generation_spec,
    greedy,
    left_padded,
    positions_of,
    tiny_bart,
    tiny_qwen3,
)
from model_export.exporter.backends.openvino.backend import SHARED_WEIGHTS_FILE
from model_export.exporter.errors import ExportError
from model_export.exporter.leaks import build_paths, check_no_leak

_TRACED, _OTHER = (2, 8, 3), (3, 13, 5)


@pytest.mark.parametrize("shape", [_TRACED, _OTHER])
def test_prefill_gives_the_eager_logits(exported: Exported, shape: tuple[int, int, int]) -> None:
    inputs = left_padded(*shape, seed=1)
    mask = inputs["attention_mask"]
    feeds = {**inputs, "position_ids": positions_of(mask)}
    logits = exported.compiled("prefill")({n: t.numpy() for n, t in feeds.items()})["logits"]
    with torch.no_grad():
        expected = exported.model(**feeds).logits
    seen = mask.bool().numpy()
    np.testing.assert_allclose(logits[seen], expected.numpy()[seen], atol=1e-4)


@pytest.mark.parametrize("shape", [_TRACED, _OTHER])
def test_stateful_decode_alone_generates_the_eager_tokens(
    exported: Exported, shape: tuple[int, int, int]
) -> None:
    inputs = left_padded(*shape, seed=2)
    expected = greedy(exported.model, inputs, steps=6).numpy()
    request = exported.compiled("decode").create_infer_request()
    batch = shape[0]
    ids, mask = inputs["input_ids"].numpy(), inputs["attention_mask"].numpy()
    positions = positions_of(inputs["attention_mask"]).numpy()
    tokens = []
    for _ in range(expected.shape[1]):
        outputs = request.infer(
            {
                "input_ids": ids,
                "attention_mask": mask,
                "position_ids": positions,
                "beam_idx": np.arange(batch, dtype=np.int32),
            }
        )
        ids = outputs["logits"][:, -1:].argmax(-1)
        tokens.append(ids)
        mask = np.concatenate([mask, np.ones((batch, 1), np.int64)], axis=1)
        positions = positions[:, -1:] + 1
    np.testing.assert_array_equal(np.concatenate(tokens, axis=1), expected)


def test_components_share_one_weights_file(exported: Exported) -> None:
    assert {path.name for path in exported.folder.iterdir()} == {
        "openvino_prefill.xml",
        "openvino_decode.xml",
        SHARED_WEIGHTS_FILE,
    }
    large: dict[str, set[str]] = {}
    for name, record in exported.records.items():
        text = (exported.folder / record.file).read_text(encoding="utf-8")
        places = re.findall(r'offset="(\d+)" size="(\d+)"', text)
        assert all(int(offset) % 64 == 0 for offset, _ in places)
        large[name] = {offset for offset, size in places if int(size) > 4096}
    assert large["prefill"] == large["decode"]
    parameters = {p.data_ptr(): p.numel() * 4 for p in exported.model.parameters()}
    size = (exported.folder / SHARED_WEIGHTS_FILE).stat().st_size
    assert sum(parameters.values()) < size < 1.05 * sum(parameters.values())


def test_files_hold_no_path_of_this_machine(exported: Exported) -> None:
    check_no_leak(exported.folder, build_paths(Path.cwd(), exported.folder))
    for record in exported.records.values():
        assert b".py" not in (exported.folder / record.file).read_bytes()


def test_records_have_the_ports(exported: Exported) -> None:
    decode, prefill = exported.records["decode"], exported.records["prefill"]
    inputs = {tensor.name: (tensor.dtype, tensor.shape) for tensor in decode.inputs}
    assert inputs["input_ids"] == ("int64", ("?", "?"))
    assert inputs["beam_idx"] == ("int32", ("?",))
    assert [tensor.name for tensor in decode.outputs] == ["logits"]
    assert [tensor.dtype for tensor in prefill.outputs] == ["float32"] * 5
    cache = {tensor.name: tensor.shape for tensor in prefill.outputs}["cache.layers.0.keys"]
    assert cache == ("?", KV_HEADS, "?", HEAD_DIM)


def test_a_component_does_not_depend_on_its_neighbours(
    exported: Exported, stateful: Exported
) -> None:
    alone = stateful.records["decode"]
    assert (alone.file, alone.weights) == ("openvino_decode.xml", ("openvino_decode.bin",))
    # Finds the .bin of its own name by itself.
    openvino.Core().read_model(stateful.folder / alone.file)

    def without_places(folder: Path) -> str:
        text = (folder / alone.file).read_text(encoding="utf-8")
        return re.sub(r'offset="\d+"', "", text)

    assert without_places(stateful.folder) == without_places(exported.folder)


def test_fixed_axes_of_a_cache_are_sizes(stateless: Exported) -> None:
    decode = stateless.records["decode"]
    caches = [t for t in (*decode.inputs, *decode.outputs) if "cache" in t.name]
    assert len(caches) == 4 * LAYERS
    assert {tensor.shape for tensor in caches} == {("?", KV_HEADS, "?", HEAD_DIM)}
    (logits,) = [tensor for tensor in decode.outputs if tensor.name == "logits"]
    assert logits.shape == ("?", "?", VOCABULARY)


def test_a_decode_step_takes_the_dimensions_that_the_target_names(tmp_path: Path) -> None:
    names = {
        "input_ids": {"0": "batch", "1": "AUTO"},
        "attention_mask": {"0": "batch", "1": "AUTO"},
        "position_ids": {"0": "batch", "1": "AUTO"},
        "cache": {"0": "batch", "2": "AUTO"},
    }
    spec = generation_spec(
        "openvino",
        {"stateful": False, "dynamic": False, "dynamic_shapes": names},
        components=("decode",),
    )
    decode = export(tiny_qwen3(), left_padded(*_TRACED), spec, tmp_path)["decode"]
    shapes = {tensor.name.removeprefix("input."): tensor.shape for tensor in decode.inputs}
    assert shapes["input_ids"] == ("batch", "?")
    assert shapes["cache.layers.1.values"] == ("batch", KV_HEADS, "?", HEAD_DIM)


def test_a_state_of_an_encoder_decoder_is_refused(tmp_path: Path) -> None:
    spec = generation_spec("openvino", {}, components=("decode",))
    with pytest.raises(ExportError, match="freeze the length of the encoder's output in `decode`"):
        export(tiny_bart(), left_padded(*_TRACED), spec, tmp_path)
