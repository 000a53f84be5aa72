"""Sample inputs of other sizes than the traced ones, where the spec calls a size dynamic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

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
    bounded one within its bounds. All but the first sequence are padded on the traced ones' side,
    and a single one as well: `generate` would else drop the mask.
    """
    sequence = _sequence_length(model, inputs)
    draw = np.random.Generator(np.random.PCG64([sizes.batch, sizes.longer + 1000]))
    tensors = {name: value for name, value in inputs.items() if isinstance(value, torch.Tensor)}
    shapes = {name: _shape(name, value, spec, sizes, sequence) for name, value in tensors.items()}
    if any(
        shapes[ids] != shapes[mask] for ids, mask in PADDING_NAMES if {ids, mask} <= set(shapes)
    ):
        shapes = {name: tuple(value.shape) for name, value in tensors.items()}
    result = dict(inputs)
    for name, shape in shapes.items():
        result[name] = _values(name, inputs[name], shape, draw)
    _pad(result, inputs, model)
    return result


def _sequence_length(model: PreTrainedModel, inputs: Mapping[str, Any]) -> int | None:
    main = inputs.get(model.main_input_name)
    if isinstance(main, torch.Tensor) and main.ndim > SEQUENCE_AXIS and _is_integer(main):
        return int(main.shape[SEQUENCE_AXIS])
    return None


def _shape(
    name: str, tensor: torch.Tensor, spec: ExportSpec, sizes: Sizes, sequence: int | None
) -> tuple[int, ...]:
    shape = list(tensor.shape)
    if tensor.ndim > BATCH_AXIS:
        shape[BATCH_AXIS] = _size(name, BATCH_AXIS, shape[BATCH_AXIS], sizes.batch, spec)
    on_sequence = tensor.ndim > SEQUENCE_AXIS and shape[SEQUENCE_AXIS] == sequence
    if sequence is not None and on_sequence and _is_integer(tensor):
        wanted = max(2, sequence + sizes.longer)
        shape[SEQUENCE_AXIS] = _size(name, SEQUENCE_AXIS, sequence, wanted, spec)
    return tuple(shape)


def _size(name: str, axis: int, traced: int, wanted: int, spec: ExportSpec) -> int:
    """`wanted` as far as the spec lets this axis change."""
    given = spec.config.get("dynamic_shapes")
    if given is None:
        return wanted if spec.config.get("dynamic") else traced
    axes = given.get(name)
    # Keys are strings where the spec has come through JSON.
    dim = axes.get(str(axis), axes.get(axis)) if isinstance(axes, Mapping) else None
    if dim is None or dim == "STATIC":
        return traced
    low, high = spec.dims.get(dim, (1, wanted))
    return min(max(wanted, low), high)


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
