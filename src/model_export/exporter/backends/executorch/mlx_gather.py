"""Lets MLX take an index of several tensors whose sizes are dynamic.

Upstream symptom (executorch 1.3.1, `backends/mlx/ops.py`, `_index_handler`): what a gather leaves
is reshaped to `int(size)` of each dimension. That writes the traced sizes into the graph, and what
is worse, into the program's own symbols: a decoder's batch is 2 from there on, its cache
`10 - tokens` long, and nothing says so. transformers reads its attention mask with such an index.
`test_mlx_still_freezes_what_it_gathers` fails once upstream doesn't.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

_INDEX = torch.ops.aten.index.Tensor


@contextmanager
def dynamic_gathers() -> Iterator[None]:
    """While the block lowers for MLX: what is gathered keeps its dynamic sizes.

    Needs `executorch.backends.mlx` to be importable (`mlx_serializers`).
    """
    # The import registers the handlers of upstream.
    import executorch.backends.mlx  # noqa: F401
    from executorch.backends.mlx.builder.op_registry import REGISTRY

    handlers = REGISTRY._handlers
    upstream = handlers[_INDEX]

    def index(builder: Any, node: torch.fx.Node) -> Any:
        indices: Any = node.args[1]
        axes = [axis for axis, one in enumerate(indices) if one is not None]
        if len(axes) < 2 or axes[-1] >= len(axes) or not _is_dynamic(node):
            return upstream(builder, node)
        return _gather(builder, node, len(axes))

    handlers[_INDEX] = index
    try:
        yield
    finally:
        handlers[_INDEX] = upstream


def _is_dynamic(node: torch.fx.Node) -> bool:
    return any(isinstance(size, torch.SymInt) for size in node.meta["val"].shape)


def _gather(builder: Any, node: torch.fx.Node, count: int) -> Any:
    """Of a tensor that its first `count` axes are indexed of.

    MLX gathers slices whose indexed axes have the size 1, behind those of the indices: without
    them it is what an index gives.
    """
    from executorch.backends.mlx.serialization.mlx_graph_schema import GatherNode, SqueezeNode

    values, indices = builder.args(node)
    source: Any = node.args[0]
    rest = list(source.meta["val"].shape[count:])
    if any(isinstance(size, torch.SymInt) for size in rest):
        raise NotImplementedError(f"MLX gathers slices of fixed sizes only, not of {rest}.")
    broadcast = node.meta["val"].dim() - len(rest)
    _, gathered = builder.make_tmp_slot()
    builder.emit(
        GatherNode(
            x=builder.slot_to_tid(values),
            indices=[builder.slot_to_tid(one) for one in indices[:count]],
            out=builder.slot_to_tid(gathered),
            axes=list(range(count)),
            slice_sizes=[1] * count + rest,
        )
    )
    out = builder.make_or_get_slot(node)
    builder.emit(
        SqueezeNode(
            x=builder.slot_to_tid(gathered),
            out=builder.slot_to_tid(out),
            dims=[broadcast + axis for axis in range(count)],
        )
    )
    return out
