"""Computes in torch what the instructions of an MLX delegate say.

This isn't MLX, and no evidence that Apple Silicon computes the same: it shows that the graph which
was lowered is the model's, at any size. It knows the instructions of a Qwen3 and no others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from executorch.exir._serialize._program import deserialize_pte_binary
from torch.nn import functional

# The numbers of ExecuTorch's ScalarType.
_DTYPES = {
    3: torch.int32,
    4: torch.int64,
    6: torch.float32,
    11: torch.bool,
}


@contextmanager
def lowered_graphs() -> Iterator[list[Any]]:
    """The graphs of the delegates that are lowered in the block, as they are serialized."""
    import executorch.backends.mlx.preprocess as preprocess

    serialize, graphs = preprocess.serialize_mlx_graph, []

    def keep(graph: Any) -> Any:
        graphs.append(graph)
        return serialize(graph)

    preprocess.serialize_mlx_graph = keep
    try:
        yield graphs
    finally:
        preprocess.serialize_mlx_graph = serialize


class MlxInstructions:
    """One graph, which is all of a program, with the constants that its `.pte` has."""

    def __init__(self, graph: Any, file: Path) -> None:
        program = deserialize_pte_binary(file.read_bytes())
        self._graph = graph
        self._constants = _constants(graph, program.named_data)
        self._plan = program.program.execution_plan[0]
        ((call,),) = (chain.instructions for chain in self._plan.chains)
        # What a delegate takes and gives is in another order than that of the program.
        self._called_with = call.instr_args.args

    def run(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The outputs of one call, both in the order of the program's."""
        values = dict(zip(self._plan.inputs, inputs, strict=True))
        memory = _Memory(dict(self._constants))
        slots = [*self._graph.input_map, *self._graph.output_map]
        places = dict(zip(self._called_with, (slot.idx for slot in slots), strict=True))
        for value, tensor in values.items():
            memory.tensors[places[value]] = tensor
        for instruction in self._graph.instruction_chains[self._graph.main_chain_idx].instructions:
            memory.execute(instruction.op)
        return [memory.tensors[places[value]] for value in self._plan.outputs]


def _constants(graph: Any, data: Any) -> dict[int, torch.Tensor]:
    found = {}
    for named in graph.named_slots:
        place = named.slot.idx
        if place < graph.num_constant_tensors and named.name in data.pte_data:
            meta = graph.tensor_meta[place]
            content = bytearray(data.buffers[data.pte_data[named.name].buffer_index])
            flat = torch.frombuffer(content, dtype=_DTYPES[meta.scalar_type])
            shape = [size.value for size in meta.shape]
            found[place] = flat[: torch.Size(shape).numel()].reshape(shape)
    return found


class _Memory:
    """The tensors and integers that instructions read and write."""

    def __init__(self, tensors: dict[int, torch.Tensor]) -> None:
        self.tensors = tensors
        self.values: dict[int, int] = {}

    def execute(self, op: Any) -> None:
        kind = type(op).__name__
        if kind == "SymSizeNode":
            self.values[op.out.idx] = self.tensors[op.a.idx].shape[op.dim]
        elif kind == "AddIntNode":
            self.values[op.out.idx] = self._number(op.a) + self._number(op.b)
        else:
            self.tensors[op.out.idx] = _OPERATORS[kind](self, op)

    def at(self, place: Any) -> torch.Tensor:
        return self.tensors[place.idx]

    def _number(self, either: Any) -> Any:
        """A number that is written in the graph, or computed from sizes."""
        number = getattr(either, "vid", None)
        if getattr(either, "is_vid", False) and number is not None:
            return self.values[number.idx]
        return either.literal

    def numbers(self, items: Sequence[Any]) -> list[Any]:
        return [self._number(item) for item in items]


def _take(memory: _Memory, op: Any) -> torch.Tensor:
    values, indices = memory.at(op.x), memory.at(op.index.tid)
    before, after = values.shape[: op.axis], values.shape[op.axis + 1 :]
    taken = torch.index_select(values, op.axis, indices.flatten())
    return taken.reshape(*before, *indices.shape, *after)


def _gather(memory: _Memory, op: Any) -> torch.Tensor:
    """As `mlx.core.gather`: the shape of the indices, then that of a slice."""
    assert op.axes == list(range(len(op.axes))) and op.slice_sizes == [1] * len(op.axes)
    indices = torch.broadcast_tensors(*(memory.at(one) for one in op.indices))
    found = memory.at(op.x)[indices]
    return found.reshape(*found.shape, *op.slice_sizes)


def _slice(memory: _Memory, op: Any) -> torch.Tensor:
    axis, start, stop = memory.numbers((op.axis, op.start, op.stop))
    values = memory.at(op.x)
    return values.narrow(axis, start, min(stop, values.shape[axis]) - start)


def _norm(memory: _Memory, op: Any) -> torch.Tensor:
    values = memory.at(op.x)
    return functional.rms_norm(values, values.shape[-1:], memory.at(op.weight), op.eps)


def _attention(memory: _Memory, op: Any) -> torch.Tensor:
    query, keys, values = memory.at(op.q), memory.at(op.k), memory.at(op.v)
    return functional.scaled_dot_product_attention(
        query, keys, values, attn_mask=memory.at(op.mask), scale=op.scale, enable_gqa=True
    )


def _range(memory: _Memory, op: Any) -> torch.Tensor:
    return torch.arange(
        *memory.numbers((op.start, op.stop, op.step)), dtype=_DTYPES[op.scalar_type]
    )


def _full(memory: _Memory, op: Any) -> torch.Tensor:
    (value,) = memory.numbers((op.v,))
    return torch.full(memory.numbers(op.shape), value, dtype=_DTYPES[op.scalar_type])


def _of_two(function: Callable[..., torch.Tensor]) -> Callable[[_Memory, Any], torch.Tensor]:
    return lambda memory, op: function(memory.at(op.a), memory.at(op.b))


def _of_one(function: Callable[..., torch.Tensor]) -> Callable[[_Memory, Any], torch.Tensor]:
    return lambda memory, op: function(memory.at(op.x))


_OPERATORS: dict[str, Callable[[_Memory, Any], torch.Tensor]] = {
    "AddNode": _of_two(torch.add),
    "AddmmNode": lambda memory, op: memory.at(op.mat1) @ memory.at(op.mat2),
    "ARangeNode": _range,
    "AsTypeNode": lambda memory, op: memory.at(op.x).to(_DTYPES[op.scalar_type]),
    "BitwiseAndNode": _of_two(torch.bitwise_and),
    "BroadcastToNode": lambda memory, op: memory.at(op.x).expand(memory.numbers(op.shape)),
    "ConcatenateNode": lambda memory, op: torch.cat([memory.at(t) for t in op.tensors], op.axis),
    "CosNode": _of_one(torch.cos),
    "ExpandDimsNode": lambda memory, op: memory.at(op.x).unsqueeze(op.axis),
    "FullNode": _full,
    "GatherNode": _gather,
    "LessEqualNode": _of_two(torch.less_equal),
    "MultiplyNode": _of_two(torch.multiply),
    "NegNode": _of_one(torch.neg),
    "ReshapeNode": lambda memory, op: memory.at(op.x).reshape(memory.numbers(op.shape)),
    "RMSNormNode": _norm,
    "SdpaNode": _attention,
    "SiluNode": _of_one(functional.silu),
    "SinNode": _of_one(torch.sin),
    "SliceNode": _slice,
    "SqueezeNode": lambda memory, op: memory.at(op.x).squeeze(tuple(op.dims)),
    "TakeNode": _take,
    "TransposeNode": lambda memory, op: memory.at(op.x).permute(op.perm),
}
