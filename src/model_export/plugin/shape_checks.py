"""Checks of `dynamic_shapes`, the bounds in `dims`, and `sample_inputs`."""

from __future__ import annotations

import math
from typing import Any, Dict, Iterable, Mapping, Tuple

from model_export.plugin.field_errors import SpecError, nearest, require_mapping
from model_export.spec import SAMPLE_FILES, TENSOR_DTYPES


def check_dynamic_shapes(shapes: object, path: str = "config['dynamic_shapes']") -> Dict[str, Any]:
    """Check `{input: {axis: dimension}}`, nested by lists for caches; axes become strings."""
    given = require_mapping(path, shapes, "a dict of input name -> {axis: dimension}")
    return {name: _check_axes(f"{path}[{name!r}]", axes) for name, axes in given.items()}


def _check_axes(path: str, axes: object) -> Any:
    if axes is None:
        return None
    if isinstance(axes, (list, tuple)):
        return [_check_axes(f"{path}[{i}]", item) for i, item in enumerate(axes)]
    if not isinstance(axes, Mapping):
        raise SpecError(path, f"must be {{axis: dimension}}, not {axes!r}", "Write {0: 'batch'}")
    checked = {}
    for axis, dim in axes.items():
        at = f"{path}[{axis!r}]"
        if isinstance(axis, bool) or not (isinstance(axis, int) or str(axis).isdigit()):
            raise SpecError(at, "is not an axis number", "Write {0: 'batch', 1: 'seq'}")
        if not (isinstance(dim, str) and (dim in ("AUTO", "STATIC") or dim.isidentifier())):
            raise SpecError(at, f"is {dim!r}", "Write a dimension's name, 'AUTO' or 'STATIC'")
        checked[str(axis)] = dim
    return checked


def check_dims_form(dims: object) -> Dict[str, Tuple[int, int]]:
    """Check the form of `dims`: name -> (min, max); raises SpecError for any other."""
    given = require_mapping("dims", dims, "a dict of name -> (min, max)")
    checked = {}
    for name, bounds in given.items():
        ok = (
            isinstance(bounds, (list, tuple))
            and len(bounds) == 2
            and all(isinstance(b, int) and not isinstance(b, bool) for b in bounds)
            and 0 <= bounds[0] < bounds[1]
        )
        if not ok:
            raise SpecError(
                f"dims[{name!r}]", f"is {bounds!r}", "Write (min, max) with 0 <= min < max"
            )
        checked[name] = (bounds[0], bounds[1])
    return checked


def check_dims(dims: object, shapes: Iterable[Mapping[str, Any]]) -> Dict[str, Tuple[int, int]]:
    """Check the bounds of the dimensions that `dynamic_shapes` names: name -> (min, max).

    `shapes` are those of all components. Raises SpecError for a wrong form, and for a name that
    none of them uses.
    """
    checked = check_dims_form(dims)
    used = {name for item in shapes for name in named_dims(item)}
    for name in checked:
        if name not in used:
            raise SpecError(
                f"dims[{name!r}]",
                "bounds a dimension that config['dynamic_shapes'] doesn't name",
                nearest(name, used),
            )
    return checked


def named_dims(shapes: Any) -> Iterable[str]:
    """The names that `dynamic_shapes` gives to dimensions."""
    values = shapes.values() if isinstance(shapes, Mapping) else shapes
    for value in values:
        if isinstance(value, str):
            if value not in ("AUTO", "STATIC"):
                yield value
        elif value is not None:
            yield from named_dims(value)


def check_sample_inputs(samples: object) -> Dict[str, Any]:
    """Check `sample_inputs`: `text`, `images` and `audio` (lists of strings), and tensors.

    A tensor is `{"shape": [2, 8], "dtype": "int64", "range": [0, 100]}` (half-open) or
    `{"values": [[1, 2]], "dtype": "int64"}`.
    """
    given = require_mapping("sample_inputs", samples, "a dict of input name -> value")
    if not given:
        raise SpecError("sample_inputs", "is empty", "Remove it to use the model's defaults")
    return {name: _check_sample(name, value) for name, value in sorted(given.items())}


def _check_sample(name: str, value: object) -> Any:
    path = f"sample_inputs[{name!r}]"
    if name == "text":
        texts = list(value) if isinstance(value, (list, tuple)) else []
        if not texts or not all(isinstance(text, str) and text for text in texts):
            raise SpecError(path, "must be a list of texts", 'Write ["Hello, world!", "Hi"]')
        return texts
    if name in SAMPLE_FILES:
        files = list(value) if isinstance(value, (list, tuple)) else []
        if not files or not all(isinstance(file, str) and file for file in files):
            raise SpecError(
                path, "must be a list of addresses", f'Name `file` or `files` targets: [":{name}"]'
            )
        return files
    tensor = require_mapping(path, value, "a dict with `shape` or `values`")
    for key in tensor:
        if key not in ("shape", "dtype", "range", "values"):
            raise SpecError(
                f"{path}[{key!r}]",
                "is unknown",
                nearest(key, ("shape", "dtype", "range", "values")),
            )
    if ("shape" in tensor) == ("values" in tensor):
        raise SpecError(path, "needs either `shape` or `values`", "Give exactly one of them")
    dtype = tensor.get("dtype", "int64")
    if dtype not in TENSOR_DTYPES:
        raise SpecError(f"{path}['dtype']", f"is {dtype!r}", nearest(str(dtype), TENSOR_DTYPES))
    checked: Dict[str, Any] = {"dtype": dtype}
    if "values" in tensor:
        if "range" in tensor:
            raise SpecError(f"{path}['range']", "belongs to `shape`", "Remove it")
        _check_values(f"{path}['values']", tensor["values"])
        checked["values"] = tensor["values"]
        return checked
    shape = tensor["shape"]
    if not (isinstance(shape, (list, tuple)) and all(_positive(size) for size in shape)):
        raise SpecError(f"{path}['shape']", f"is {shape!r}", "Write positive sizes: [2, 8]")
    checked["shape"] = list(shape)
    if "range" in tensor:
        low_high = tensor["range"]
        pair = isinstance(low_high, (list, tuple)) and len(low_high) == 2
        if not pair or not all(map(_number, low_high)) or not low_high[0] < low_high[1]:
            raise SpecError(f"{path}['range']", f"is {low_high!r}", "Write [low, high], low < high")
        checked["range"] = list(low_high)
    return checked


def _check_values(path: str, values: object) -> Tuple[int, ...]:
    """The shape of nested lists of numbers; raises SpecError where they aren't rectangular."""
    if not isinstance(values, (list, tuple)):
        if not (_number(values) or isinstance(values, bool)):
            raise SpecError(path, f"has {values!r}", "Write nested lists of numbers: [[1, 2]]")
        return ()
    shapes = {_check_values(path, item) for item in values}
    if len(shapes) != 1:
        problem = "has rows of different lengths" if shapes else "has an empty list"
        raise SpecError(path, problem, "Write rows of one length: [[1, 2], [3, 4]]")
    return (len(values), *shapes.pop())


def _number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return math.isfinite(value)


def _positive(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
