"""How hidden states become vectors, with values worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from model_export.runtime.embedding import Pooling, pool, read_pooling
from model_export.runtime.errors import ArtifactError

# Two texts of 3 and 2 tokens; what stands at the padding must not count.
HIDDEN = np.array(
    [[[1, 2], [3, 4], [5, -6]], [[-1, 0], [-3, 8], [100, 100]]],
    dtype=np.float32,
)
MASK = np.array([[1, 1, 1], [1, 1, 0]])


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("cls", [[1, 2], [-1, 0]]),
        ("mean", [[3, 0], [-2, 4]]),
        ("max", [[5, 4], [-1, 8]]),
        ("mean_sqrt_len_tokens", [[9 / 3**0.5, 0], [-4 / 2**0.5, 8 / 2**0.5]]),
        ("weightedmean", [[22 / 6, -8 / 6], [-7 / 3, 16 / 3]]),
        ("lasttoken", [[5, -6], [-3, 8]]),
    ],
)
def test_pooling_modes(mode: str, expected: list[list[float]]) -> None:
    np.testing.assert_allclose(pool(HIDDEN, MASK, Pooling((mode,))), expected, rtol=1e-6)


def test_modes_are_joined_and_normalised() -> None:
    vectors = pool(HIDDEN, MASK, Pooling(("cls", "lasttoken"), normalize=True))
    np.testing.assert_allclose(vectors[0], np.array([1, 2, 5, -6]) / 66**0.5, rtol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-6)


def _modules(folder: Path, kinds: dict[str, str], pooling: dict[str, Any]) -> Path:
    modules = [{"type": kind, "path": path} for kind, path in kinds.items()]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    return folder


@pytest.mark.parametrize(
    ("pooling", "modes"),
    [
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, ("cls",)),
        ({"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": True}, ("max", "mean")),
        ({"pooling_mode": "lasttoken", "embedding_dimension": 2}, ("lasttoken",)),
        ({"pooling_mode": ["mean", "cls"]}, ("mean", "cls")),
        ({}, ("mean",)),
    ],
    ids=str,
)
def test_what_sentence_transformers_wrote(
    tmp_path: Path, pooling: dict[str, Any], modes: tuple[str, ...]
) -> None:
    """Flags are of its versions to 4, the one key of 5 on; module paths changed as well."""
    kinds = {
        "sentence_transformers.base.modules.transformer.Transformer": "",
        "sentence_transformers.models.Pooling": "1_Pooling",
        "sentence_transformers.models.Normalize": "2_Normalize",
    }
    assert read_pooling(_modules(tmp_path, kinds, pooling)) == Pooling(modes, normalize=True)


def test_without_its_files_the_mean_is_taken(tmp_path: Path) -> None:
    assert read_pooling(tmp_path) == Pooling(("mean",), normalize=False)


def test_a_module_that_cannot_be_computed(tmp_path: Path) -> None:
    folder = _modules(tmp_path, {"sentence_transformers.models.Dense": "2_Dense"}, {})
    with pytest.raises(ArtifactError, match=r"a module Dense.*use `forward`"):
        read_pooling(folder)


def test_an_unknown_pooling_mode(tmp_path: Path) -> None:
    kinds = {"sentence_transformers.models.Pooling": "1_Pooling"}
    with pytest.raises(ArtifactError, match=r"the pooling mode 'median'"):
        read_pooling(_modules(tmp_path, kinds, {"pooling_mode": "median"}))
