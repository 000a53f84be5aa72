"""Holds the inputs of a call against a graph's record before its runtime sees them."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping, Sequence

from model_export.manifest import ComponentRecord, TensorRecord
from model_export.runtime.errors import InputError
from model_export.runtime.graph import Array, numpy_dtype


def check_inputs(
    record: ComponentRecord,
    inputs: Mapping[str, Array],
    optional: Sequence[TensorRecord] = (),
    defaulted: Collection[str] = (),
) -> None:
    """Raise InputError unless `inputs` are what the graph takes.

    That is every input of the record but `defaulted`, any of `optional` and none other, each with
    its dtype (float32 for bfloat16), its rank, its static sizes and sizes within the bounds;
    dimensions of one name have one size.
    """
    known = {tensor.name: tensor for tensor in (*record.inputs, *optional)}
    for name in inputs:
        if name not in known:
            nearest = difflib.get_close_matches(name, known, n=1)
            hint = f"Did you mean `{nearest[0]}`?" if nearest else f"It takes {', '.join(known)}."
            raise InputError(f"`{record.name}` has no input `{name}`. {hint}")
    for tensor in record.inputs:
        if tensor.name not in inputs and tensor.name not in defaulted:
            raise InputError(
                f"`{record.name}` needs `{tensor.name}` ({_described(tensor)}): pass it as well."
            )
    sizes: dict[str, tuple[int, str]] = {}
    for name, array in inputs.items():
        _check_tensor(record, known[name], array, sizes)


def _check_tensor(
    record: ComponentRecord, tensor: TensorRecord, array: Array, sizes: dict[str, tuple[int, str]]
) -> None:
    """Check one array; `sizes` has the size of each named dimension and who said so."""
    if array.dtype != numpy_dtype(tensor.dtype) or array.ndim != len(tensor.shape):
        raise InputError(
            f"`{record.name}` takes `{tensor.name}` as {_described(tensor)}, "
            f"not as {array.dtype} {list(array.shape)}."
        )
    for axis, (wanted, size) in enumerate(zip(tensor.shape, array.shape, strict=True)):
        if wanted == "?":
            continue
        if isinstance(wanted, int):
            if size != wanted:
                raise InputError(
                    f"`{record.name}` takes `{tensor.name}` with {wanted} at axis {axis}, "
                    f"not {size}: the graph was exported with that size."
                )
            continue
        low, high = record.bounds.get(wanted, (0, None))
        if size < low or (high is not None and size > high):
            raise InputError(
                f"`{record.name}` takes `{tensor.name}` with {low} to {high} at axis {axis} "
                f"({wanted}), not {size}: stay inside, or export with wider `dims`."
            )
        before, first = sizes.setdefault(wanted, (size, tensor.name))
        if before != size:
            raise InputError(
                f"`{record.name}` takes `{tensor.name}` and `{first}` with one size of {wanted}, "
                f"not {size} and {before}."
            )


def _described(tensor: TensorRecord) -> str:
    return f"{tensor.dtype} [{', '.join(str(size) for size in tensor.shape)}]"
