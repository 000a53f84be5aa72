"""Lets ExecuTorch plan for the bounds that dimensions have, instead of the engine's guess.

Upstream symptom (transformers 5.24.0, `_patch_eval_upper_bound`): each planned size is clamped to
max(4 x traced, 1024), also where `dynamic_shapes` allows more; the program then fails at run time
with "Attempted to resize a bounded tensor". The clamp is meant for quotients, whose bound by
interval arithmetic is absurd; for sums and products of dimensions the true bound is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import sympy
import torch
from transformers.exporters.utils import register_patch


@dataclass(frozen=True)
class PlannedSizes:
    """How sizes are planned during one export; `longest`, if any, limits every sum."""

    longest: int | None


_active: ContextVar[PlannedSizes | None] = ContextVar("_active", default=None)


@contextmanager
def exact_upper_bounds(longest: int | None) -> Iterator[None]:
    """Plan sums and products of bounded dimensions at their true upper bound.

    A sum of dimensions (a cache and what is added to it) counts at most `longest`.
    """
    token = _active.set(PlannedSizes(longest))
    try:
        yield
    finally:
        _active.reset(token)


@register_patch(
    "executorch",
    "executorch.exir.sym_util.eval_upper_bound",
    "executorch.exir.passes.sym_shape_eval_pass.eval_upper_bound",
)
def _prefer_exact_bound(
    original: Callable[[int | torch.SymInt], int],
) -> Callable[[int | torch.SymInt], int]:
    """Registered after the engine's own patch of the same function, and so wraps it."""

    def eval_upper_bound(size: int | torch.SymInt) -> int:
        planned = _active.get()
        if planned is not None and isinstance(size, torch.SymInt):
            exact = _exact(size, planned.longest)
            if exact is not None:
                return exact
        return original(size)

    return eval_upper_bound


def _exact(size: torch.SymInt, longest: int | None) -> int | None:
    """The largest value of a sum of products of bounded dimensions; None for anything else."""
    expression = size.node.expr
    ranges = size.node.shape_env.var_to_range
    total = 0
    terms = sympy.Add.make_args(expression)
    for term in terms:
        product = 1
        for factor in sympy.Mul.make_args(term):
            if factor.is_Integer and factor > 0:
                product *= int(factor)
                continue
            limits = ranges.get(factor)
            if limits is None or not limits.upper.is_Integer:
                return None
            product *= int(limits.upper)
        total += product
    if longest is not None and len(terms) > 1:
        return min(total, longest)
    return total
