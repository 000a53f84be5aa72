"""Runs a model's own weight initialisation with numbers that are the same on every machine.

Each architecture of the engine initialises its weights in `_init_weights`, with random fills of
its own standard deviations, with ones and zeros, with formulas. All of that stays; only where the
numbers come from changes: random fills draw from `exact_random`, and arithmetic in reduced
precision is done in float64 and rounded once, so that a vectorised `log` that is off by one bit on
another CPU doesn't show (but for a chance of about 1e-9 a number; only small tensors such as
Mamba's time steps are made this way).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map
from transformers import initialization

from model_export.checkpoints.exact_random import Stream

_aten = torch.ops.aten
_REDUCED = (torch.float32, torch.float16, torch.bfloat16)

# Operators that move or set numbers without computing any: their results are exact as they are.
_EXACT = frozenset(
    {"copy_", "fill_", "zero_", "zeros", "zeros_like", "new_zeros"}
    | {"ones", "ones_like", "new_ones", "full", "full_like", "new_full"}
    | {"clone", "_to_copy", "cat", "stack", "where", "index_put_", "masked_fill_", "masked_fill"}
    | {"_local_scalar_dense", "detach", "lift_fresh", "scalar_tensor", "eye", "tril", "triu"}
    | {"eq", "ne", "lt", "le", "gt", "ge", "isnan", "isfinite", "equal", "is_nonzero"}
)
_ALLOCATIONS = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "empty_permuted"})
_FACTORIES = frozenset({"arange", "linspace", "logspace"})


def mark_of(dtype: torch.dtype) -> Any:
    """What memory holds that no initialisation has reached: NaN, or the largest integer."""
    if dtype.is_floating_point or dtype.is_complex:
        return float("nan")
    return True if dtype == torch.bool else torch.iinfo(dtype).max


class UnknownRandomOperator(NotImplementedError):
    """An initialisation that draws random numbers in a way that has no exact counterpart here."""


class ExactInitialization(TorchDispatchMode):
    """Inside this mode, random fills depend on the seed and the tensor's name alone.

    `names` maps the storage address of each tensor of the model to its name. A random tensor
    outside of it (a temporary in a formula) is named by its number in the order of creation.
    """

    def __init__(self, seed: int, names: Mapping[int, str]) -> None:
        super().__init__()
        self._seed = seed
        self._names = names
        self._temporaries = 0

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = dict(kwargs or {})
        name = func.overloadpacket.__name__
        if torch.Tag.nondeterministic_seeded in func.tags:
            return self._draw(func, name, args, kwargs)
        if name in _ALLOCATIONS:
            memory = func(*args, **kwargs)
            return memory.fill_(mark_of(memory.dtype))
        if name in _FACTORIES:
            return _wide_factory(func, args, kwargs)
        if (
            name in _EXACT
            or func.is_view
            or torch.Tag.inplace_view in func.tags
            or not _has_reduced(args)
        ):
            return func(*args, **kwargs)
        return _wide(func, args, kwargs)

    def _draw(self, func: Any, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        kwargs.pop("generator", None)
        if name == "normal_":
            return self.fill_normal(
                args[0], *_filled_in(args[1:], kwargs, ("mean", 0.0), ("std", 1.0))
            )
        if name == "uniform_":
            return self.fill_uniform(
                args[0], *_filled_in(args[1:], kwargs, ("from", 0.0), ("to", 1.0))
            )
        fill = {"rand": self.fill_uniform, "randn": self.fill_normal}.get(
            name.removesuffix("_like")
        )
        if fill is None:
            raise UnknownRandomOperator(f"its initialisation uses `{func}`")
        empty = torch.empty_like if name.endswith("_like") else torch.empty
        return fill(empty(*args, **kwargs), 0.0, 1.0)

    def fill_normal(self, tensor: torch.Tensor, mean: float, std: float) -> torch.Tensor:
        """Fill a tensor with normal numbers of its stream."""
        return _assign(tensor, self._stream(tensor).normal(tensor.numel(), mean, std))

    def fill_uniform(self, tensor: torch.Tensor, low: float, high: float) -> torch.Tensor:
        """Fill a tensor with uniform numbers of its stream."""
        return _assign(tensor, self._stream(tensor).uniform(tensor.numel(), low, high))

    def fill_truncated_normal(
        self,
        tensor: torch.Tensor,
        mean: float = 0.0,
        std: float = 1.0,
        a: float = -2.0,
        b: float = 2.0,
        generator: torch.Generator | None = None,
    ) -> torch.Tensor:
        """`torch.nn.init.trunc_normal_`, which by itself would pass through `erfinv`."""
        stream = self._stream(tensor)
        with torch.no_grad():
            return _assign(tensor, stream.truncated_normal(tensor.numel(), mean, std, a, b))

    def refuse_orthogonal(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Refuse `torch.nn.init.orthogonal_`: the bits of a QR decomposition depend on the CPU,
        and in a matrix of millions some survive any rounding."""
        raise UnknownRandomOperator("its initialisation makes orthogonal matrices")

    def _stream(self, tensor: torch.Tensor) -> Stream:
        """A stream of its own for each fill: a tied weight, which is filled once by each of its
        modules, gets the same numbers each time, and a part of a tensor those of its offset."""
        name = self._names.get(tensor.untyped_storage().data_ptr())
        if name is None:
            name = f"#{self._temporaries}"
            self._temporaries += 1
        elif tensor.storage_offset():
            name = f"{name}@{tensor.storage_offset()}"
        return Stream(self._seed, name)


@contextmanager
def exact_initialization(seed: int, names: Mapping[int, str]) -> Iterator[None]:
    """Make the engine's initialisation reproducible; see `ExactInitialization`.

    Normal, uniform and Kaiming or Xavier fills are caught at the operator. `trunc_normal_` is
    caught one level higher, in the table through which the engine (transformers 5.24.0) and the
    guarded `torch.nn.init` call it.
    """
    mode = ExactInitialization(seed, names)
    table = initialization.TORCH_INIT_FUNCTIONS
    original = dict(table)
    table["trunc_normal_"] = mode.fill_truncated_normal
    table["orthogonal_"] = mode.refuse_orthogonal
    try:
        with torch.no_grad(), mode:
            yield
    finally:
        table.update(original)


def _filled_in(
    args: Sequence[Any], kwargs: Mapping[str, Any], *parameters: tuple[str, float]
) -> list[float]:
    """The values of optional parameters that were passed by position, by name or not at all."""
    return [
        args[index] if index < len(args) else kwargs.get(name, default)
        for index, (name, default) in enumerate(parameters)
    ]


def _assign(tensor: torch.Tensor, values: np.ndarray) -> torch.Tensor:
    return tensor.copy_(torch.from_numpy(values).view(tensor.shape))


def _is_reduced(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype in _REDUCED


def _has_reduced(args: Sequence[Any]) -> bool:
    found = False

    def look(value: Any) -> None:
        nonlocal found
        found = found or _is_reduced(value)

    tree_map(look, list(args))
    return found


def _widened(value: Any) -> Any:
    return value.double() if _is_reduced(value) else value


def _wide(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Compute in float64; round to the dtype that the operator would have given."""
    narrow = args[0].dtype if _is_reduced(args[0]) else torch.float32
    wide = [_widened(value) for value in args]
    options = {key: _widened(value) for key, value in kwargs.items()}
    if func._schema.is_mutable:
        func(*wide, **options)
        for value, result in zip(args, wide, strict=True):
            if _is_reduced(value):
                value.copy_(result)
        return args[0]
    return tree_map(
        lambda result: (
            result.to(narrow)
            if isinstance(result, torch.Tensor) and result.dtype == torch.float64
            else result
        ),
        func(*wide, **options),
    )


def _wide_factory(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """`arange` and its like, which may fuse a multiplication and an addition on some CPUs."""
    result = func(*args, **kwargs)
    if result.dtype not in _REDUCED or result.device.type == "meta":
        return result
    return func(*args, **{**kwargs, "dtype": torch.float64}).to(result.dtype)
