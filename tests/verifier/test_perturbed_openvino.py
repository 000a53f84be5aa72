"""A wrong OpenVINO IR doesn't pass, and the failure says what is wrong with it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import openvino
import openvino.opset13 as ops
import pytest

from exporter.backends.tiny_models import generation_spec, left_padded
from verifier.artifacts import Built, build
from verifier.damaged_files import Damage, each_damage
from verifier.wrong_modules import KEPT, one_layer_decoder

_INPUTS = left_padded(2, 8, 3)
_GROWING = generation_spec("openvino", {})
_GRAPH, _WEIGHTS = "openvino_decode.xml", "openvino_decode.bin"
_CONSTANT = re.compile(
    r'type="Const"[^>]*>\s*<data element_type="f32" shape="([\d, ]+)" '
    r'offset="(\d+)" size="(\d+)"'
)


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build(one_layer_decoder, _INPUTS, _GROWING, tmp_path_factory.mktemp("growing"))


def _edited(right: Built, folder: Path, edit: Callable[[openvino.Model], None]) -> Built:
    """A copy whose graph and weights are those of the edited model."""
    wrong = right.copy(folder)
    model = openvino.Core().read_model(right.artifact / _GRAPH, right.artifact / _WEIGHTS)
    edit(model)
    openvino.save_model(model, wrong.artifact / _GRAPH, compress_to_fp16=False)
    wrong.rehash()
    return wrong


def _change_weight(
    built: Built, place: tuple[int, int], change: Callable[[np.ndarray], None]
) -> None:
    """Change the float32 constant at `place` (its offset and size) of the weights file."""
    offset, size = place
    path = built.artifact / _WEIGHTS
    content = bytearray(path.read_bytes())
    change(np.frombuffer(content, np.float32, size // 4, offset))
    path.write_bytes(content)
    built.rehash()


def _matrices(built: Built) -> list[tuple[int, int]]:
    """Offset and size of each constant of more than 64 numbers."""
    text = (built.artifact / _GRAPH).read_text(encoding="utf-8")
    places = {(int(offset), int(size)) for _, offset, size in _CONSTANT.findall(text)}
    return sorted(place for place in places if place[1] > 256)


def test_the_right_artifact_passes(right: Built) -> None:
    assert right.verify().failure is None


def test_every_weight_counts(right: Built, tmp_path: Path) -> None:
    """1 % more in one tensor, and in the largest element of one tensor."""

    def scale(weight: np.ndarray) -> None:
        weight *= np.float32(1.01)

    def scale_one(weight: np.ndarray) -> None:
        weight[np.abs(weight).argmax()] *= np.float32(1.01)

    places = _matrices(right)
    unseen = {"tensor": 0, "element": 0}
    for number, place in enumerate(places):
        for what, change in (("tensor", scale), ("element", scale_one)):
            wrong = right.copy(tmp_path / f"{number}{what}")
            _change_weight(wrong, place, change)
            unseen[what] += wrong.verify().failure is None
    assert len(places) == 8
    # The queries' and the keys': a norm follows both in Qwen3, and takes their scale away.
    assert unseen["tensor"] == 2
    assert unseen["element"] <= 2


def test_nan_in_a_weight_fails(right: Built, tmp_path: Path) -> None:
    def spoil(weight: np.ndarray) -> None:
        weight[7] = np.nan

    wrong = right.copy(tmp_path)
    _change_weight(wrong, _matrices(right)[-1], spoil)
    assert "`logits` [2, 2, 256] is nan at [" in wrong.failure()


def test_a_swapped_cache_fails(right: Built, tmp_path: Path) -> None:
    def swap(model: openvino.Model) -> None:
        first, second = (sink.input(0) for sink in model.get_sinks())
        sources = first.get_source_output(), second.get_source_output()
        first.replace_source_output(sources[1])
        second.replace_source_output(sources[0])

    failure = _edited(right, tmp_path, swap).failure()
    assert re.match(
        r"`decode`, traced: `output.cache.layers.0.(keys|values)` \[2, 2, 10, 16\] dif", failure
    )


def test_an_ignored_mask_fails(right: Built, tmp_path: Path) -> None:
    def ignore(model: openvino.Model) -> None:
        port = model.input("attention_mask")
        users = port.get_target_inputs()
        ones = ops.maximum(port, ops.constant(np.int64(1)))
        for user in users:
            user.replace_source_output(ones.output(0))

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


def test_a_frozen_dimension_fails(right: Built, tmp_path: Path) -> None:
    def freeze(model: openvino.Model) -> None:
        model.reshape({"position_ids": openvino.PartialShape([2, -1])})

    assert _edited(right, tmp_path, freeze).failure() == (
        "`decode`, signature: input `position_ids` is [2, ?] (expected [?, ?])"
    )


def test_a_forgetful_cache_fails(right: Built, tmp_path: Path) -> None:
    def cut(model: openvino.Model) -> None:
        for sink in model.get_sinks():
            source = sink.input(0).get_source_output()
            start, stop, step, axis = (np.array([n], np.int64) for n in (-KEPT, 2**62, 1, 2))
            last = ops.slice(source, start, stop, step, axis)
            sink.input(0).replace_source_output(last.output(0))

    failure = _edited(right, tmp_path, cut).failure()
    assert re.match(
        r"`decode`, traced: `output.cache.layers.0.(keys|values)` has the shape", failure
    )


def test_a_static_cache_that_lost_its_count_fails(tmp_path: Path) -> None:
    """The engine bakes a static cache's filled length into a stateful graph (transformers 5.24.0).

    If this fails, the exporter's refusal of such a spec is no longer needed.
    """
    spec = generation_spec(
        "openvino", {}, generation_config={"cache_implementation": "static", "max_cache_len": 32}
    )
    assert (
        build(one_layer_decoder, _INPUTS, spec, tmp_path)
        .failure()
        .startswith(
            "`decode`, signature: `cache.layers.0.cumulative_length` is an input of the eager model"
        )
    )


def test_a_renamed_input_fails(right: Built, tmp_path: Path) -> None:
    def rename(model: openvino.Model) -> None:
        model.input("input_ids").set_names({"tokens"})

    failure = _edited(right, tmp_path, rename).failure()
    assert failure == "`decode`, signature: input `input_ids` of the manifest isn't in the graph"


def test_weights_that_end_too_early_fail_whatever_the_hash(right: Built, tmp_path: Path) -> None:
    wrong = right.copy(tmp_path)
    with (wrong.artifact / _WEIGHTS).open("r+b") as file:
        file.truncate(100_000)
    wrong.rehash()
    assert f"of `{_WEIGHTS}`, which has 100000" in wrong.failure()


@each_damage
def test_a_damaged_folder_fails(right: Built, damage: Damage, tmp_path: Path) -> None:
    wrong = right.copy(tmp_path)
    failure = damage(wrong)
    assert wrong.failure().startswith(failure)
