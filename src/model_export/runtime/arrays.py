"""What callers pass for a tensor, as the array that a graph takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from model_export.manifest import ComponentRecord
from model_export.runtime.errors import InputError
from model_export.runtime.graph import Array, numpy_dtype

# By the name of an input.
Dtypes: TypeAlias = "Mapping[str, np.dtype[Any]]"


def input_dtypes(records: Iterable[ComponentRecord]) -> Dtypes:
    """The dtypes of these graphs' inputs; float32 for bfloat16."""
    return {
        tensor.name: numpy_dtype(tensor.dtype) for record in records for tensor in record.inputs
    }


def as_array(name: str, value: ArrayLike, dtypes: Dtypes) -> Array:
    """An array as it is; anything else in the dtype of the input `name`, if there is one.

    Raises InputError for what can't be an array.
    """
    if isinstance(value, np.ndarray):
        return value
    try:
        return np.asarray(value, dtypes.get(name))
    except (TypeError, ValueError) as error:
        raise InputError(f"`{name}` is no array: {error}.") from error
