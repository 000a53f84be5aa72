"""Lets MLX number its temporary tensors in the same order in every process.

Upstream symptom (executorch 1.3.1, `backends/mlx/builder/program_builder.py`): the slots of a graph
are kept in a set, hashed by their address in memory, and sorted by an index that several of them
share. No two lowerings of a model have the same bytes. `test_mlx_still_sorts_by_address` fails once
they are kept in order.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def ordered_slots() -> Iterator[None]:
    """While the block lowers for MLX: slots of one index are numbered in the order they are made.

    Needs `executorch.backends.mlx` to be importable (`mlx_serializers`).
    """
    from executorch.backends.mlx.builder.program_builder import MLXProgramBuilder

    collect = MLXProgramBuilder._collect_used_slots

    def collect_in_order(builder: Any) -> Any:
        used, tensors, values = collect(builder)
        made = (
            slot
            for slots in builder.slot_manager.name_to_slot.values()
            for slot in (slots if isinstance(slots, tuple) else (slots,))
        )
        # A dict is asked the same things as a set, and keeps its order.
        return dict.fromkeys(slot for slot in made if slot in used), tensors, values

    MLXProgramBuilder._collect_used_slots = collect_in_order
    try:
        yield
    finally:
        MLXProgramBuilder._collect_used_slots = collect
