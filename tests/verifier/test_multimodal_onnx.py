"""Models that see: artifacts that are right pass, and each way of being wrong fails."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx.external_data_helper import ExternalDataInfo

from exporter.backends.tiny_models import generation_spec, greedy
from exporter.backends.tiny_multimodal import (
    IMAGE,
    llava_inputs,
    qwen2_vl_inputs,
    tiny_llava,
    tiny_qwen2_vl,
)
from model_export.runtime import InputError, load
from verifier.artifacts import Built, build

SPEC = generation_spec("onnx", {})
STATIC = {"cache_implementation": "static", "max_cache_len": 48}
STEPS = 10


@pytest.fixture(scope="module")
def llava(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build(tiny_llava, llava_inputs(), SPEC, tmp_path_factory.mktemp("llava"))


@pytest.fixture(scope="module")
def qwen2_vl(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build(tiny_qwen2_vl, qwen2_vl_inputs(), SPEC, tmp_path_factory.mktemp("qwen2_vl"))


@pytest.mark.parametrize("name", ["llava", "qwen2_vl"])
def test_a_right_artifact_passes(name: str, request: pytest.FixtureRequest) -> None:
    verdict = request.getfixturevalue(name).verify()
    assert verdict.failure is None
    names = [case.case for case in verdict.cases if case.component == "generation"]
    assert len(names) == 5 and "text alone, in chunks" in names


def _arrays(inputs: dict[str, torch.Tensor]) -> dict[str, Any]:
    return {name: tensor.numpy() for name, tensor in inputs.items()}


def _said(built: Built, inputs: dict[str, torch.Tensor]) -> list[list[int]]:
    completions = load(built.artifact).generate(**_arrays(inputs), max_new_tokens=STEPS)
    return [list(completion.tokens) for completion in completions]


@pytest.mark.parametrize(("batch", "length"), [(2, 12), (1, 15), (3, 21)])
def test_llava_says_what_it_says_eagerly(llava: Built, batch: int, length: int) -> None:
    inputs = llava_inputs(batch, length, seed=length)
    expected = greedy(tiny_llava(), inputs, STEPS).tolist()
    assert len({token for row in expected for token in row}) > 2
    assert _said(llava, inputs) == expected


@pytest.mark.parametrize(
    "grids",
    [
        ((1, 4, 4), (1, 4, 4)),
        ((1, 6, 4),),
        ((1, 4, 8), (1, 2, 2), (1, 8, 4)),
        ((2, 4, 4),),
    ],
)
def test_qwen2_vl_says_what_it_says_eagerly(
    qwen2_vl: Built, grids: tuple[tuple[int, int, int], ...]
) -> None:
    inputs = qwen2_vl_inputs(grids, length=18, seed=len(grids))
    expected = greedy(tiny_qwen2_vl(), inputs, STEPS).tolist()
    assert len({token for row in expected for token in row}) > 2
    assert _said(qwen2_vl, inputs) == expected


def test_a_static_cache(tmp_path: Path) -> None:
    spec = generation_spec("onnx", {}, generation_config=STATIC)
    built = build(tiny_qwen2_vl, qwen2_vl_inputs(), spec, tmp_path)
    assert built.verify().failure is None
    inputs = qwen2_vl_inputs()
    assert _said(built, inputs) == greedy(tiny_qwen2_vl(), inputs, STEPS).tolist()


def test_one_token_at_a_time(tmp_path: Path) -> None:
    spec = generation_spec("onnx", {}, multi_token_decode=False)
    built = build(tiny_llava, llava_inputs(), spec, tmp_path)
    assert built.verify().failure is None


def test_an_image_matters(llava: Built) -> None:
    inputs = llava_inputs(1)
    other = {**inputs, "pixel_values": 1 - inputs["pixel_values"]}
    assert _said(llava, inputs) != _said(llava, other)


def test_one_placeholder_for_an_image_is_enough(llava: Built, qwen2_vl: Built) -> None:
    for built, inputs in ((llava, llava_inputs(1)), (qwen2_vl, qwen2_vl_inputs(((1, 4, 8),)))):
        arrays = _arrays(inputs)
        ids = arrays.pop("input_ids")[0].tolist()
        first, last = ids.index(IMAGE), len(ids) - ids[::-1].index(IMAGE)
        del arrays["attention_mask"]
        (completion,) = load(built.artifact).generate(
            [ids[: first + 1] + ids[last:]], max_new_tokens=STEPS, **arrays
        )
        assert [list(completion.tokens)] == _said(built, inputs)


@pytest.mark.parametrize(
    ("shape", "component"),
    # The convolution that embeds patches, and the projector's second layer.
    [([32, 3, 8, 8], "image_encoder"), ([64, 64], "multi_modal_projector")],
)
def test_a_perturbed_weight_fails(
    llava: Built, shape: list[int], component: str, tmp_path: Path
) -> None:
    wrong = llava.copy(tmp_path)
    graph = onnx.load(wrong.artifact / wrong.record(component).file, load_external_data=False).graph
    (tensor,) = (item for item in graph.initializer if list(item.dims) == shape)
    place = ExternalDataInfo(tensor)
    path = wrong.artifact / place.location
    content = bytearray(path.read_bytes())
    weight = np.frombuffer(content, np.float32, place.length // 4, place.offset)
    weight *= np.float32(1.02)
    path.write_bytes(content)
    wrong.rehash()
    assert f"`{component}`" in wrong.failure()


@pytest.mark.parametrize(
    "change", [{"skip": 0}, {"output": "last_hidden_state"}, {"token": 249}, {"projector": None}]
)
def test_a_wrong_rule_fails(llava: Built, change: dict[str, Any], tmp_path: Path) -> None:
    built = llava.copy(tmp_path)
    rule = built.manifest.multimodal
    assert rule is not None
    wrong = replace(rule, media=(replace(rule.media[0], **change),))
    built.write(replace(built.manifest, multimodal=wrong))
    assert "`generation`" in built.failure()


def test_wrong_positions_fail(qwen2_vl: Built, tmp_path: Path) -> None:
    """Patches that aren't merged four by four are more vectors than there are placeholders."""
    built = qwen2_vl.copy(tmp_path)
    rule = built.manifest.multimodal
    assert rule is not None
    built.write(replace(built.manifest, multimodal=replace(rule, grid_merge=1)))
    assert "`generation`" in built.failure()


def test_inputs_that_do_not_fit(llava: Built, qwen2_vl: Built) -> None:
    model = load(llava.artifact)
    inputs = _arrays(llava_inputs(1))
    with pytest.raises(InputError, match=r"placeholder 250 4 times, and .* makes 0 vectors"):
        model.generate(input_ids=inputs["input_ids"])
    with pytest.raises(InputError, match=r"doesn't take pixels: it takes pixel_values"):
        model.generate(input_ids=inputs["input_ids"], pixels=inputs["pixel_values"])
    grids = _arrays(qwen2_vl_inputs(((1, 4, 4),)))
    del grids["image_grid_thw"]
    with pytest.raises(InputError, match="`pixel_values` comes without image_grid_thw"):
        load(qwen2_vl.artifact).generate(**grids)
    grids["image_grid_thw"] = np.array([[1, 2, 8]])
    grids["input_ids"][0, 6] = 9
    with pytest.raises(InputError, match="makes 4 vectors"):
        load(qwen2_vl.artifact).generate(**grids)
