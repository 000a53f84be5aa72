"""A wrong `.pt2` doesn't pass, and the failure says what is wrong with it."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from exporter.backends.tiny_models import generation_spec, left_padded
from model_export.runtime.graphs.saved_program import load
from verifier.artifacts import Built, build
from verifier.damaged_files import Damage, each_damage
from verifier.wrong_modules import (
    forget,
    ignore_the_mask,
    one_layer_decoder,
    scale_a_weight,
    swap_outputs,
)

_INPUTS = left_padded(2, 8, 3)
_GROWING = generation_spec("dynamo", {})
_STATIC = generation_spec(
    "dynamo", {}, generation_config={"cache_implementation": "static", "max_cache_len": 32}
)


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build(one_layer_decoder, _INPUTS, _GROWING, tmp_path_factory.mktemp("growing"))


@pytest.fixture(scope="module")
def right_static(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build(one_layer_decoder, _INPUTS, _STATIC, tmp_path_factory.mktemp("static"))


def _wrong(right: Built, folder: Path, **changes: Any) -> Built:
    return build(one_layer_decoder, _INPUTS, _GROWING, folder, probe=right.probe, **changes)


def test_right_artifacts_pass(right: Built, right_static: Built) -> None:
    assert right.verify().failure is None
    assert right_static.verify().failure is None


@pytest.mark.parametrize(
    ("spoil", "failure"),
    [
        (scale_a_weight, "`logits` [2, 2, 256] differs by "),
        (swap_outputs, "`output.cache.layers.0.keys` [2, 2, 10, 16] differs by "),
        (ignore_the_mask, "`logits` [2, 2, 256] differs by "),
        (forget, "`output.cache.layers.0.keys` has the shape [2, 2, 4, 16] (expected [2, 2, 10, "),
    ],
)
def test_a_wrong_module_fails(
    right: Built, spoil: Callable[[torch.nn.Module], None], failure: str, tmp_path: Path
) -> None:
    wrong = _wrong(right, tmp_path, spoil=spoil)
    assert wrong.failure().startswith(f"`decode`, traced: {failure}")


def test_a_dropped_mask_fails(right: Built, tmp_path: Path) -> None:
    # A mask of ones: `generate` drops it while the engine looks on (transformers 5.24.0).
    unpadded = left_padded(2, 8, 0)
    failure = _wrong(right, tmp_path, built_inputs=unpadded).failure()
    assert failure.startswith("`decode`, signature: `attention_mask` is an input of the eager ")


def test_frozen_dimensions_fail(right: Built, tmp_path: Path) -> None:
    frozen = generation_spec("dynamo", {"dynamic": False})
    failure = _wrong(right, tmp_path, built_spec=frozen).failure()
    assert failure == (
        "`decode`, signature: input `input_ids` is frozen at 2 on axis 0, where the export asks "
        "for a dynamic size (tried: 1, 2, 3)"
    )


def test_half_a_static_cache_fails(right_static: Built, tmp_path: Path) -> None:
    # With `dynamic` the length of the cache is the caller's choice; here the graph fixes it.
    tensor = {0: "batch"}
    shapes = {
        "input_ids": {0: "batch", 1: "new"},
        "attention_mask": {0: "batch", 2: "new"},
        "position_ids": {0: "batch", 1: "new"},
        "cache": [tensor, tensor, {}],
    }
    half = generation_spec(
        "dynamo",
        {"dynamic": False, "dynamic_shapes": shapes},
        generation_config={"cache_implementation": "static", "max_cache_len": 16},
    )
    wrong = build(
        one_layer_decoder, _INPUTS, _STATIC, tmp_path, probe=right_static.probe, built_spec=half
    )
    assert wrong.failure() == (
        "`decode`, signature: input `attention_mask.full_attention` has the size 16 on axis 3 "
        "(expected 32, the eager model's)"
    )


def test_nan_in_a_weight_fails(right: Built, tmp_path: Path) -> None:
    wrong = right.copy(tmp_path)
    path = wrong.artifact / "decode.pt2"
    program = load(path)
    with torch.no_grad():
        program.state_dict["model.layers.0.mlp.down_proj.weight"][3, 5] = torch.nan
    torch.export.save(program, path)
    wrong.rehash()
    failure = wrong.failure()
    assert failure.startswith(
        "`decode`, traced: `logits` [2, 2, 256] is nan at [0, 0, 0] (expected"
    )


def test_a_renamed_input_fails(right: Built, tmp_path: Path) -> None:
    wrong = right.copy(tmp_path)
    path = wrong.artifact / "decode.pt2"
    with zipfile.ZipFile(path) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            if "/models/" in name:
                content = content.replace(rb"\"input_ids\\\"", rb"\"tokens\\\"")
            archive.writestr(name, content)
    wrong.rehash()
    assert wrong.failure() == (
        "`decode`, signature: input `input_ids` of the manifest isn't in the graph"
    )


@each_damage
def test_a_damaged_folder_fails(right: Built, damage: Damage, tmp_path: Path) -> None:
    wrong = right.copy(tmp_path)
    failure = damage(wrong)
    assert wrong.failure().startswith(failure)
