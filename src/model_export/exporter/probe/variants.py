"""Sample inputs of other sizes than the traced ones, where the spec calls a size dynamic."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel
from transformers.exporters.utils import get_leaf_tensors

from model_export.exporter.samples import PADDING_NAMES, pad_token
from model_export.spec import ExportSpec

# Axes of a tensor that hold sequences, and positions in a sequence.
BATCH_AXIS, SEQUENCE_AXIS = 0, 1


@dataclass(frozen=True)
class Sizes:
    """How many sequences, and how many positions longer than the traced ones."""

    batch: int
    longer: int

    def __str__(self) -> str:
        return f"batch {self.batch}, length {self.longer:+d}"


# One sequence alone is the case that a trace most often gets wrong, and an odd number bigger than
# the traced one shows what is tied to it. ExecuTorch's default bound is a batch of four.
UNTRACED = (Sizes(1, +5), Sizes(3, -2))


def resized(
    model: PreTrainedModel, inputs: Mapping[str, Any], spec: ExportSpec, sizes: Sizes
) -> dict[str, Any]:
    """Other values for `inputs` (kwargs of `forward` or `generate`), at `sizes` where allowed.

    The first axis of every tensor is its batch; the second of integer tensors is a sequence, as
    long as the main input's. A size that the spec doesn't call dynamic stays as it was traced, a
    bounded one within its bounds; with caches or other containers among them, only the batch
    changes. All but the first sequence are padded on the traced ones' side,
    and a single one as well: `generate` would else drop the mask.
    """
    nested = any(
        not isinstance(value, torch.Tensor) and get_leaf_tensors({name: value})
        for name, value in inputs.items()
    )
    # What is inside a cache or another container goes with the positions that it was made for.
    sequence = None if nested else _sequence_length(model, inputs)
    draw = np.random.Generator(np.random.PCG64([sizes.batch, sizes.longer + 1000]))
    tensors = {name: value for name, value in inputs.items() if isinstance(value, torch.Tensor)}
    shapes = {}
    for name, value in tensors.items():
        longer = max(2, (sequence or 0) + sizes.longer)
        batch = _allowed(name, BATCH_AXIS, sizes.batch, spec)
        length = _allowed(name, SEQUENCE_AXIS, longer, spec)
        shapes[name] = _shape(value, sequence, batch, length)
    if any(
        tensors[ids].shape == tensors[mask].shape and shapes[ids] != shapes[mask]
        for ids, mask in PADDING_NAMES
        if {ids, mask} <= set(shapes)
    ):
        shapes = {name: tuple(value.shape) for name, value in tensors.items()}
    return _remade(model, inputs, shapes, draw)


def at_named_sizes(
    model: PreTrainedModel, inputs: Mapping[str, Any], spec: ExportSpec, sizes: Mapping[str, int]
) -> dict[str, Any]:
    """Other values for `inputs`, the axes that the spec's `dynamic_shapes` names at `sizes`.

    A mask whose own axes have no names goes with its token ids. All else stays as it was traced.
    """
    shapes = {
        name: tuple(
            sizes.get(_dimension(name, axis, spec) or "", size)
            for axis, size in enumerate(tensor.shape)
        )
        for name, tensor in inputs.items()
        if isinstance(tensor, torch.Tensor)
    }
    for ids, mask in PADDING_NAMES:
        if {ids, mask} <= set(shapes):
            shapes[mask] = shapes[ids]
    return _remade(model, inputs, shapes, np.random.Generator(np.random.PCG64(0)))


def of_batch_and_length(
    model: PreTrainedModel, inputs: Mapping[str, Any], batch: int | None, length: int | None
) -> dict[str, Any]:
    """Other values for `inputs`, of so many sequences and positions; None leaves what is traced."""
    sequence = _sequence_length(model, inputs)
    shapes = {
        name: _shape(tensor, sequence, batch, length)
        for name, tensor in inputs.items()
        if isinstance(tensor, torch.Tensor)
    }
    return _remade(model, inputs, shapes, np.random.Generator(np.random.PCG64(0)))


def _remade(
    model: PreTrainedModel,
    inputs: Mapping[str, Any],
    shapes: Mapping[str, tuple[int, ...]],
    draw: np.random.Generator,
) -> dict[str, Any]:
    """`inputs` with tensors of `shapes`, padded on the traced ones' side."""
    result = dict(inputs)
    for name, shape in shapes.items():
        result[name] = _values(name, inputs[name], shape, draw)
    for name, value in inputs.items():
        if name not in shapes and get_leaf_tensors({name: value}):
            result[name] = _rows(value, inputs, result)
    _pad(result, inputs, model)
    return result


def _rows(value: Any, traced: Mapping[str, Any], resized: Mapping[str, Any]) -> Any:
    """A copy of a container with as many rows in its tensors as `resized` has: the first, again."""
    batches = [
        (tensor.shape[BATCH_AXIS], resized[name].shape[BATCH_AXIS])
        for name, tensor in traced.items()
        if isinstance(tensor, torch.Tensor) and tensor.ndim > BATCH_AXIS
    ]
    copied = copy.deepcopy(value)
    for leaf in get_leaf_tensors({"": copied}).values():
        for before, after in batches[:1]:
            if leaf.ndim > BATCH_AXIS and leaf.shape[BATCH_AXIS] == before:
                leaf.data = leaf[torch.arange(after) % before].clone()
    return copied


def _sequence_length(model: PreTrainedModel, inputs: Mapping[str, Any]) -> int | None:
    main = inputs.get(model.main_input_name)
    if isinstance(main, torch.Tensor) and main.ndim > SEQUENCE_AXIS and _is_integer(main):
        return int(main.shape[SEQUENCE_AXIS])
    return None


def _shape(
    tensor: torch.Tensor, sequence: int | None, batch: int | None, length: int | None
) -> tuple[int, ...]:
    """The shape of `tensor` with so many sequences and, where its second axis is one, positions."""
    shape = list(tensor.shape)
    if batch is not None and tensor.ndim > BATCH_AXIS:
        shape[BATCH_AXIS] = batch
    on_sequence = tensor.ndim > SEQUENCE_AXIS and shape[SEQUENCE_AXIS] == sequence
    if length is not None and on_sequence and _is_integer(tensor):
        shape[SEQUENCE_AXIS] = length
    return tuple(shape)


def _allowed(name: str, axis: int, wanted: int, spec: ExportSpec) -> int | None:
    """`wanted` as far as the spec lets this axis change; None where it doesn't."""
    if spec.config.get("dynamic_shapes") is None:
        return wanted if spec.config.get("dynamic") else None
    dim = _dimension(name, axis, spec)
    if dim is None or dim == "STATIC":
        return None
    low, high = spec.dims.get(dim, (1, wanted))
    return min(max(wanted, low), high)


def _dimension(name: str, axis: int, spec: ExportSpec) -> str | None:
    """What the spec's `dynamic_shapes` calls an axis of an input."""
    axes = (spec.config.get("dynamic_shapes") or {}).get(name)
    if not isinstance(axes, Mapping):
        return None
    # Keys are strings where the spec has come through JSON.
    dim: str | None = axes.get(str(axis), axes.get(axis))
    return dim


def _values(
    name: str, traced: torch.Tensor, shape: tuple[int, ...], draw: np.random.Generator
) -> torch.Tensor:
    if name.endswith("mask") or traced.dtype == torch.bool:
        return torch.ones(shape, dtype=traced.dtype)
    if name == "position_ids":
        return torch.arange(shape[-1], dtype=traced.dtype).expand(shape).clone()
    low, high = (float(bound) for bound in (traced.min(), traced.max()))
    if traced.is_floating_point():
        numbers = draw.random(shape, dtype=np.float32) * (high - low) + low
        return torch.from_numpy(numbers).to(traced.dtype)
    return torch.from_numpy(draw.integers(int(low), int(high) + 1, size=shape)).to(traced.dtype)


def _pad(result: dict[str, Any], traced: Mapping[str, Any], model: PreTrainedModel) -> None:
    """Give a single sequence, or all but the first, padding where the traced ones have it."""
    pad = pad_token(model)
    for ids_name, mask_name in PADDING_NAMES:
        ids, mask = result.get(ids_name), result.get(mask_name)
        before = traced.get(mask_name)
        if ids is None or mask is None or before is None or ids.shape != mask.shape:
            continue
        first = 0 if len(mask) == 1 else 1
        width = min(2, mask.shape[1] - 1)
        left = bool((before[:, 0] == 0).any())
        columns = slice(None, width) if left else slice(mask.shape[1] - width, None)
        mask[first:, columns] = 0
        ids[first:, columns] = pad


def _is_integer(tensor: torch.Tensor) -> bool:
    return not tensor.is_floating_point() and not tensor.is_complex()
