"""A wrong ONNX file doesn't pass, and the failure says what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.external_data_helper import ExternalDataInfo, uses_external_data

from exporter.backends.tiny_models import generation_spec, left_padded
from verifier.artifacts import Built, build
from verifier.damaged_files import Damage, each_damage
from verifier.wrong_modules import KEPT, one_layer_decoder

_INPUTS = left_padded(2, 8, 3)
_GROWING = generation_spec("onnx", {})
_STATIC = generation_spec(
    "onnx", {}, generation_config={"cache_implementation": "static", "max_cache_len": 32}
)
_KEYS, _VALUES = "output.cache.layers.0.keys", "output.cache.layers.0.values"


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build(one_layer_decoder, _INPUTS, _GROWING, tmp_path_factory.mktemp("growing"))


@pytest.fixture(scope="module")
def right_static(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build(one_layer_decoder, _INPUTS, _STATIC, tmp_path_factory.mktemp("static"))


def _edited(right: Built, folder: Path, edit: Callable[[onnx.ModelProto], None]) -> Built:
    """A copy with another graph beside the same weights."""
    wrong = right.copy(folder)
    path = wrong.artifact / "decode.onnx"
    model = onnx.load(path, load_external_data=False)
    edit(model)
    onnx.save(model, path)
    wrong.rehash()
    return wrong


def _weights(built: Built) -> dict[str, ExternalDataInfo]:
    """Where each float weight lies in `model.onnx.data`."""
    model = onnx.load(built.artifact / "decode.onnx", load_external_data=False)
    return {
        tensor.name: ExternalDataInfo(tensor)
        for tensor in model.graph.initializer
        if uses_external_data(tensor) and tensor.data_type == TensorProto.FLOAT
    }


def _change_weight(built: Built, name: str, change: Callable[[np.ndarray], None]) -> None:
    place = _weights(built)[name]
    path = built.artifact / place.location
    content = bytearray(path.read_bytes())
    change(np.frombuffer(content, np.float32, place.length // 4, place.offset))
    path.write_bytes(content)
    built.rehash()


def test_right_artifacts_pass(right: Built, right_static: Built) -> None:
    assert right.verify().failure is None
    assert right_static.verify().failure is None


def test_every_weight_counts(right: Built, tmp_path: Path) -> None:
    """1 % more in one tensor, and in the largest element of one tensor."""

    def scale(weight: np.ndarray) -> None:
        weight *= np.float32(1.01)

    def scale_one(weight: np.ndarray) -> None:
        weight[np.abs(weight).argmax()] *= np.float32(1.01)

    names = list(_weights(right))
    unseen: dict[str, list[str]] = {"tensor": [], "element": []}
    for place, name in enumerate(names):
        for what, change in (("tensor", scale), ("element", scale_one)):
            wrong = right.copy(tmp_path / f"{place}{what}")
            _change_weight(wrong, name, change)
            if wrong.verify().failure is None:
                unseen[what].append(name)
    assert len(names) == 8
    # The queries' and the keys': a norm follows both in Qwen3, and takes their scale away.
    assert len(unseen["tensor"]) == 2
    assert len(unseen["element"]) <= 2


def test_nan_in_a_weight_fails(right: Built, tmp_path: Path) -> None:
    def spoil(weight: np.ndarray) -> None:
        weight[7] = np.nan

    wrong = right.copy(tmp_path)
    name = next(name for name in _weights(right) if "down_proj" in name or "val_" in name)
    _change_weight(wrong, name, spoil)
    assert "`logits` [2, 2, 256] is nan at [" in wrong.failure()


def test_swapped_outputs_fail(right: Built, tmp_path: Path) -> None:
    def swap(model: onnx.ModelProto) -> None:
        other = {_KEYS: _VALUES, _VALUES: _KEYS}
        for node in model.graph.node:
            for side in (node.input, node.output):
                for place, name in enumerate(side):
                    side[place] = other.get(name, name)

    failure = _edited(right, tmp_path, swap).failure()
    assert failure.startswith(f"`decode`, traced: `{_KEYS}` [2, 2, 10, 16] differs by ")


def test_an_ignored_mask_fails(right: Built, tmp_path: Path) -> None:
    def ignore(model: onnx.ModelProto) -> None:
        for node in model.graph.node:
            for place, name in enumerate(node.input):
                if name == "attention_mask":
                    node.input[place] = "ones"
        one = helper.make_tensor("one", TensorProto.INT64, [], [1])
        model.graph.initializer.append(one)
        model.graph.node.insert(0, helper.make_node("Max", ["attention_mask", "one"], ["ones"]))

    failure = _edited(right, tmp_path, ignore).failure()
    assert failure.startswith("`decode`, traced: `logits` [2, 2, 256] differs by ")


def test_a_dropped_mask_fails(right: Built, tmp_path: Path) -> None:
    # A mask of ones: `generate` drops it while the engine looks on (transformers 5.24.0).
    wrong = build(
        one_layer_decoder,
        _INPUTS,
        _GROWING,
        tmp_path,
        probe=right.probe,
        built_inputs=left_padded(2, 8, 0),
    )
    failure = wrong.failure()
    assert failure.startswith("`decode`, signature: `attention_mask` is an input of the eager ")


def _freeze(model: onnx.ModelProto) -> None:
    port = next(port for port in model.graph.input if port.name == "position_ids")
    port.type.tensor_type.shape.dim[0].dim_value = 2


def test_a_frozen_dimension_fails(right: Built, tmp_path: Path) -> None:
    wrong = _edited(right, tmp_path, _freeze)
    assert wrong.failure() == (
        "`decode`, signature: input `position_ids` is [2, sequence] (expected [batch, sequence])"
    )


def test_a_frozen_dimension_fails_if_the_manifest_says_so_too(right: Built, tmp_path: Path) -> None:
    wrong = _edited(right, tmp_path, _freeze)
    record = wrong.record("decode")
    inputs = tuple(
        replace(port, shape=(2, *port.shape[1:])) if port.name == "position_ids" else port
        for port in record.inputs
    )
    wrong.replace_record(replace(record, inputs=inputs))
    assert wrong.failure() == (
        "`decode`, signature: input `position_ids` is frozen at 2 on axis 0, where the export "
        "asks for a dynamic size (tried: 1, 2, 3)"
    )


def test_a_forgetful_cache_fails(right: Built, tmp_path: Path) -> None:
    def cut(model: onnx.ModelProto) -> None:
        for name in (_KEYS, _VALUES):
            for node in model.graph.node:
                for side in (node.input, node.output):
                    for place, found in enumerate(side):
                        side[place] = f"all.{name}" if found == name else found
            bounds = {"starts": -KEPT, "ends": 2**62, "axes": 2}
            for bound, value in bounds.items():
                tensor = helper.make_tensor(f"{name}.{bound}", TensorProto.INT64, [1], [value])
                model.graph.initializer.append(tensor)
            places = [f"{name}.{bound}" for bound in bounds]
            model.graph.node.append(helper.make_node("Slice", [f"all.{name}", *places], [name]))

    failure = _edited(right, tmp_path, cut).failure()
    assert failure.startswith(f"`decode`, traced: `{_KEYS}` has the shape [2, 2, {KEPT}, 16] (exp")


def test_half_a_static_cache_fails(right_static: Built, tmp_path: Path) -> None:
    def halve(model: onnx.ModelProto) -> None:
        for port in model.graph.input:
            if port.name.startswith("input.cache") and len(port.type.tensor_type.shape.dim) == 4:
                port.type.tensor_type.shape.dim[2].dim_value = 16

    wrong = _edited(right_static, tmp_path, halve)
    record = wrong.record("decode")
    inputs = tuple(
        replace(port, shape=(*port.shape[:2], 16, port.shape[3]))
        if port.name.startswith("input.cache") and len(port.shape) == 4
        else port
        for port in record.inputs
    )
    wrong.replace_record(replace(record, inputs=inputs))
    assert wrong.failure() == (
        "`decode`, signature: input `input.cache.layers.0.keys` has the size 16 on axis 2 "
        "(expected 32, the eager model's)"
    )


def test_a_renamed_input_fails(right: Built, tmp_path: Path) -> None:
    def rename(model: onnx.ModelProto) -> None:
        next(port for port in model.graph.input if port.name == "input_ids").name = "tokens"
        for node in model.graph.node:
            for place, name in enumerate(node.input):
                node.input[place] = "tokens" if name == "input_ids" else name

    failure = _edited(right, tmp_path, rename).failure()
    assert failure == "`decode`, signature: input `input_ids` of the manifest isn't in the graph"


def test_an_operator_that_the_opset_lacks_fails(right: Built, tmp_path: Path) -> None:
    def replace_operator(model: onnx.ModelProto) -> None:
        next(node for node in model.graph.node if node.op_type == "MatMul").op_type = "MatrixMul"

    failure = _edited(right, tmp_path, replace_operator).failure()
    assert failure == "`decode`, signature: operator `MatrixMul` isn't in opset 20"


def test_an_operator_of_one_runtime_alone_fails(right: Built, tmp_path: Path) -> None:
    def replace_operator(model: onnx.ModelProto) -> None:
        node = next(node for node in model.graph.node if node.op_type == "Sigmoid")
        node.op_type, node.domain = "QuickGelu", "com.microsoft"
        model.opset_import.append(helper.make_opsetid("com.microsoft", 1))

    failure = _edited(right, tmp_path, replace_operator).failure()
    assert failure == (
        "`decode`, signature: operator `com.microsoft.QuickGelu` isn't one of ONNX's own"
    )


@pytest.mark.parametrize("location", ["../model.onnx.data", "other.onnx.data"])
def test_weights_in_another_file_fail(right: Built, location: str, tmp_path: Path) -> None:
    def move(model: onnx.ModelProto) -> None:
        tensor = next(tensor for tensor in model.graph.initializer if uses_external_data(tensor))
        next(item for item in tensor.external_data if item.key == "location").value = location

    failure = _edited(right, tmp_path, move).failure()
    assert f"in `{location}`, which isn't among its weights files (model.onnx.data)" in failure


def test_weights_that_end_too_early_fail_whatever_the_hash(right: Built, tmp_path: Path) -> None:
    wrong = right.copy(tmp_path)
    with (wrong.artifact / "model.onnx.data").open("r+b") as file:
        file.truncate(100_000)
    wrong.rehash()
    assert "of `model.onnx.data`, which has 100000" in wrong.failure()


@each_damage
def test_a_damaged_folder_fails(right: Built, damage: Damage, tmp_path: Path) -> None:
    wrong = right.copy(tmp_path)
    failure = damage(wrong)
    assert wrong.failure().startswith(failure)
