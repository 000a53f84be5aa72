"""Tensors as JSON: nested lists, or an object with `shape`, `dtype` and `values`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from model_export.runtime.arrays import Dtypes
from model_export.runtime.errors import InputError
from model_export.runtime.graph import Array, numpy_dtype


def read_tensors(path: Path, dtypes: Dtypes) -> dict[str, Array]:
    """The arrays of a JSON object in a file, by name.

    What states no dtype has that of the input of its name, or else the one numpy gives it. Raises
    InputError for a file that isn't there or holds something else.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path} can't be read: {error.strerror}.") from error
    except ValueError as error:
        raise InputError(f"{path} is no JSON: {error}.") from error
    if not isinstance(document, dict):
        raise InputError(f'{path} holds no object: write {{"input_ids": [[1, 2, 3]]}}.')
    return {name: _tensor(path, name, value, dtypes.get(name)) for name, value in document.items()}


def _tensor(path: Path, name: str, value: Any, dtype: np.dtype[Any] | None) -> Array:
    try:
        if not isinstance(value, dict):
            return np.asarray(value, dtype)
        stated = value.get("dtype")
        values = np.asarray(value["values"], numpy_dtype(stated) if stated else dtype)
        return values.reshape(value.get("shape", values.shape))
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{path}: {name} is no tensor ({error}): write nested lists, or "
            '{"shape": [1, 2], "dtype": "int64", "values": [3, 4]}.'
        ) from error


def tensors_json(tensors: Mapping[str, Array]) -> str:
    """One line of JSON with `shape`, `dtype` and nested `values` of each."""
    return json.dumps(
        {
            name: {
                "dtype": str(tensor.dtype),
                "shape": list(tensor.shape),
                "values": tensor.tolist(),
            }
            for name, tensor in tensors.items()
        }
    )
