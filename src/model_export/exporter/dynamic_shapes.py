"""From a target's `dynamic_shapes` and `dims` to what `torch.export` takes; for all formats."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch.export import Dim
from torch.utils import _pytree as pytree
from transformers.exporters.exporter_dynamo import register_cache_pytrees_for_model
from transformers.exporters.utils import get_leaf_tensors

from model_export.exporter.errors import ExportError
from model_export.manifest import TensorRecord
from model_export.spec import ExportSpec

_FIELD = "config['dynamic_shapes']"
# Sizes 0 and 1 are constants to a trace (torch 2.12.0), whatever may come at run time.
_SMALLEST_TRACED = 2
_MODES = {"AUTO": Dim.AUTO, "STATIC": Dim.STATIC}


@dataclass(frozen=True)
class DynamicShapes:
    """What one component's trace is told about its dimensions.

    `tree` has the structure of the component's inputs, as `torch.export.export` wants its
    `dynamic_shapes`; None where the target gives none. `names` says which axes of which input
    tensor the target names: `{"input_ids": {0: "batch", 1: "sequence"}}`, with a cache's tensors
    under the engine's names (`cache.layers.0.keys`).
    """

    tree: dict[str, Any] | None
    names: Mapping[str, Mapping[int, str]]


def build_dynamic_shapes(
    module: torch.nn.Module, inputs: Mapping[str, Any], spec: ExportSpec
) -> DynamicShapes:
    """The dynamic shapes of a component that takes `inputs`.

    Axes that a given input doesn't list are static, as is an input that isn't listed at all;
    names of inputs that this component doesn't have are left to `check_input_names`. `{axis: dim}`
    for a cache or another container holds for each of its tensors; a list goes item by item.

    Raises ExportError for an axis that the tensor doesn't have, or a list of the wrong length.
    """
    given = spec.config.get("dynamic_shapes")
    if given is None:
        return DynamicShapes(None, {})
    # Before the engine registers it, a cache isn't a node of the tree that torch.export flattens.
    register_cache_pytrees_for_model(module)
    builder = _Builder(spec)
    tree = {
        name: builder.build(value, given.get(name), f"{_FIELD}[{name!r}]")
        for name, value in inputs.items()
    }
    axes_by_leaf = dict(zip(get_leaf_tensors(dict(inputs)), builder.axes, strict=True))
    named = {
        leaf: {axis: dim for axis, dim in axes.items() if dim not in _MODES}
        for leaf, axes in axes_by_leaf.items()
    }
    return DynamicShapes(tree, {leaf: axes for leaf, axes in named.items() if axes})


def check_input_names(spec: ExportSpec, inputs: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise ExportError if `dynamic_shapes` names an input that no component has.

    `inputs` are the forward kwargs of every component, by its name. A component with a
    `dynamic_shapes` of its own has to have what that names by itself.
    """
    known = sorted({name for kwargs in inputs.values() for name in kwargs})
    for name in spec.config.get("dynamic_shapes") or {}:
        if name not in known:
            raise ExportError(
                f"{_FIELD}[{name!r}]",
                "is not an input of any component",
                f"The inputs are {', '.join(known)}",
            )
    for component, config in spec.component_config.items():
        for name in config.get("dynamic_shapes") or {}:
            if name not in inputs[component]:
                raise ExportError(
                    f"component_config[{component!r}]['dynamic_shapes'][{name!r}]",
                    "is not an input of that component",
                    f"Its inputs are {', '.join(inputs[component])}",
                )


def recorded_bounds(
    tensors: Iterable[TensorRecord], spec: ExportSpec
) -> dict[str, tuple[int, int]]:
    """The target's bounds of the dimensions that occur in `tensors`.

    ONNX and OpenVINO don't enforce them, but the trace relied on them.
    """
    used = {dim for tensor in tensors for dim in tensor.shape}
    return {name: bounds for name, bounds in spec.dims.items() if name in used}


def traced_size(size: int | torch.SymInt) -> int | sympy.Expr:
    """A size in a traced program: a number, or an expression of what may change.

    A size that the trace has fixed can still be a SymInt (torch 2.12.0).
    """
    if isinstance(size, int):
        return size
    expression = size.node.expr
    return int(expression) if expression.is_Integer else expression


class _Builder:
    """Mirrors inputs as shapes; collects the listed axes of each tensor in flattening order."""

    def __init__(self, spec: ExportSpec) -> None:
        self._bounds = spec.dims
        self._dims: dict[str, Any] = {}
        self.axes: list[dict[int, str]] = []

    def build(self, value: Any, shape: Any, path: str) -> Any:
        if isinstance(value, torch.Tensor):
            return self._tensor(value, shape, path)
        if type(value) is dict:
            return {key: self.build(item, shape, path) for key, item in value.items()}
        if type(value) in (list, tuple):
            return type(value)(self._children(value, shape, path))
        if type(value) in pytree.SUPPORTED_NODES:
            # torch.export compares a registered node with a list of its children's shapes.
            children, _ = pytree.SUPPORTED_NODES[type(value)].flatten_fn(value)
            return self._children(children, shape, path)
        return None

    def _children(self, children: Iterable[Any], shape: Any, path: str) -> list[Any]:
        children = list(children)
        if not isinstance(shape, (list, tuple)):
            return [self.build(child, shape, path) for child in children]
        if len(shape) != len(children):
            raise ExportError(
                path,
                f"has {len(shape)} items for {len(children)} tensors",
                "Write {axis: dimension} once for all of them, or one item each",
            )
        return [
            self.build(child, item, f"{path}[{index}]")
            for index, (child, item) in enumerate(zip(children, shape, strict=True))
        ]

    def _tensor(self, tensor: torch.Tensor, shape: Any, path: str) -> dict[int, Any] | None:
        if shape is None:
            self.axes.append({})
            return None
        if not isinstance(shape, Mapping):
            raise ExportError(path, f"is {shape!r} for one tensor", "Write {axis: dimension}")
        axes = {int(axis): dim for axis, dim in shape.items()}
        for axis in axes:
            if axis >= tensor.ndim:
                raise ExportError(
                    f"{path}[{axis}]",
                    f"is not an axis of a tensor of shape {list(tensor.shape)}",
                    f"Axes go from 0 to {tensor.ndim - 1}",
                )
            self._check_size(f"{path}[{axis}]", axes[axis], tensor.shape[axis])
        self.axes.append(axes)
        return {axis: self._dim(dim) for axis, dim in axes.items()}

    def _check_size(self, path: str, dim: str, size: int) -> None:
        """Raise ExportError for a size that a named dimension can't be traced at."""
        if dim in _MODES:
            return
        if size < _SMALLEST_TRACED:
            raise ExportError(
                path,
                f"names {dim!r} where the traced call has {size}, which torch.export takes for a "
                "constant (0/1 specialization)",
                f"Trace with at least {_SMALLEST_TRACED} (`sample_inputs`), or leave the axis out: "
                "a decode step has one token without `multi_token_decode`",
            )
        low, high = self._bounds.get(dim, (size, size))
        if not low <= size <= high:
            raise ExportError(
                f"dims[{dim!r}]",
                f"is ({low}, {high}), and the traced call has {size} at {path}",
                "Widen it, or trace at a size inside (`sample_inputs`)",
            )

    def _dim(self, name: str) -> Any:
        if name in _MODES:
            return _MODES[name]
        if name not in self._dims:
            low, high = self._bounds.get(name, (None, None))
            self._dims[name] = Dim(name, min=low, max=high)
        return self._dims[name]
