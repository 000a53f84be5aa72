"""Lets the edge dialect hold `torch.sym_min` and `torch.sym_max`, which a later pass replaces.

Upstream symptom (transformers 5.24.0, executorch 1.3.1): with bounded dimensions and
`prefer_deferred_runtime_asserts_over_guards`, the asserts of a decoder compute with `sym_min`. The
engine replaces those of the trace (`_fix_python_sym_op`), but lowering traces again and makes new
ones, which the edge verifier refuses with an `AssertionError` that says nothing. `to_executorch`
would have replaced them all.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers.exporters.utils import register_patch


@register_patch(
    "executorch",
    "executorch.exir.passes.executorch_prim_ops_registry._EXECUTORCH_SYM_OPS",
    "executorch.exir.verification.verifier._EXECUTORCH_SYM_OPS",
)
def allow_minimum_and_maximum(original: set[Any]) -> set[Any]:
    """The allowed operators on sizes; registered after the engine's patch, and so on top of it."""
    return original | {torch.sym_min, torch.sym_max}
