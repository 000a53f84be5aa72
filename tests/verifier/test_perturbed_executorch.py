"""A wrong `.pte` doesn't pass, and the failure says what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from exporter.backends.tiny_models import generation_spec, left_padded
from verifier.artifacts import Built, build
from verifier.damaged_files import Damage, each_damage
from verifier.wrong_modules import forget, ignore_the_mask, one_layer_decoder, swap_outputs

_INPUTS = left_padded(2, 8, 3)
_GROWING = generation_spec("executorch", {})
_WEIGHT = "model.layers.0.mlp.down_proj.weight"


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build(one_layer_decoder, _INPUTS, _GROWING, tmp_path_factory.mktemp("growing"))


def _change_weight(built: Built, change: Callable[[np.ndarray], None]) -> None:
    """Change one float32 weight, which the file holds as it is."""
    path = built.artifact / "decode.pte"
    content = bytearray(path.read_bytes())
    weight = one_layer_decoder().get_parameter(_WEIGHT).detach().numpy()
    offset = content.find(weight.tobytes())
    assert offset >= 0
    change(np.frombuffer(content, np.float32, weight.size, offset))
    path.write_bytes(content)
    built.rehash()


def test_the_right_artifact_passes(right: Built) -> None:
    assert right.verify().failure is None


def test_a_weight_that_is_one_percent_off_fails(right: Built, tmp_path: Path) -> None:
    def scale(weight: np.ndarray) -> None:
        weight *= np.float32(1.01)

    wrong = right.copy(tmp_path)
    _change_weight(wrong, scale)
    assert wrong.failure().startswith("`decode`, traced: `logits` [2, 2, 256] differs by ")


def test_nan_in_a_weight_fails(right: Built, tmp_path: Path) -> None:
    def spoil(weight: np.ndarray) -> None:
        weight[7] = np.nan

    wrong = right.copy(tmp_path)
    _change_weight(wrong, spoil)
    assert wrong.failure().startswith("`decode`, traced: `logits` [2, 2, 256] is nan at [0, 0, 0]")


@pytest.mark.parametrize(
    ("spoil", "failure"),
    [
        (swap_outputs, "`output.cache.layers.0.keys` [2, 2, 10, 16] differs by "),
        (ignore_the_mask, "`logits` [2, 2, 256] differs by "),
        (forget, "`output.cache.layers.0.keys` has the shape [2, 2, 4, 16] (expected [2, 2, 10, "),
    ],
)
def test_a_wrong_module_fails(
    right: Built, spoil: Callable[[torch.nn.Module], None], failure: str, tmp_path: Path
) -> None:
    wrong = build(one_layer_decoder, _INPUTS, _GROWING, tmp_path, probe=right.probe, spoil=spoil)
    assert wrong.failure().startswith(f"`decode`, traced: {failure}")


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


def test_frozen_dimensions_fail(right: Built, tmp_path: Path) -> None:
    wrong = build(
        one_layer_decoder,
        _INPUTS,
        _GROWING,
        tmp_path,
        probe=right.probe,
        built_spec=generation_spec("executorch", {"dynamic": False}),
    )
    assert wrong.failure() == (
        "`decode`, signature: input `input_ids` is frozen at 2 on axis 0, where the export asks "
        "for a dynamic size (tried: 1, 2, 3)"
    )
    # The same file under the right manifest: what the `.pte` says of itself is read as well.
    wrong.replace_record(right.record("decode"))
    assert wrong.failure() == (
        "`decode`, signature: input `input_ids` is [2, 2] (expected [input_ids.0, input_ids.1])"
    )


def test_half_a_static_cache_fails(tmp_path: Path) -> None:
    def static(length: int) -> dict[str, object]:
        return {"cache_implementation": "static", "max_cache_len": length}

    wrong = build(
        one_layer_decoder,
        _INPUTS,
        generation_spec("executorch", {}, generation_config=static(32)),
        tmp_path,
        built_spec=generation_spec("executorch", {}, generation_config=static(16)),
    )
    assert wrong.failure().startswith(
        "`decode`, traced: the call fails with InputError: `decode` takes "
        "`attention_mask.full_attention` with 0 to 16 at axis 3"
    )


@each_damage
def test_a_damaged_folder_fails(right: Built, damage: Damage, tmp_path: Path) -> None:
    wrong = right.copy(tmp_path)
    failure = damage(wrong)
    assert wrong.failure().startswith(failure)
