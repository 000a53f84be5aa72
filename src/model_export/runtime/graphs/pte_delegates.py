"""Which delegates a `.pte` hands its graph to, and what it keeps for itself."""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from pathlib import Path

from flatbuffers.number_types import UOffsetTFlags
from flatbuffers.table import Table

# Positions of fields in executorch's `schema/program.fbs`, whose generated readers are for C++.
_PROGRAM_PLANS = 1
_PLAN_OPERATORS = 6
_PLAN_DELEGATES = 7
_FIRST = 0


@dataclass(frozen=True)
class Delegation:
    """The delegates by name, in the order of the program, and the operators outside of them."""

    delegates: tuple[str, ...]
    operators: tuple[str, ...]


def read_delegation(path: Path) -> Delegation:
    """What the one method of the program in `path` says; its weights aren't read."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        # A copy of a few bytes each: nothing may point into the file once it is closed.
        root = Table(content, int.from_bytes(content[:4], "little"))
        (plan,) = _tables(root, _PROGRAM_PLANS)
        return Delegation(
            tuple(_text(delegate, _FIRST) for delegate in _tables(plan, _PLAN_DELEGATES)),
            tuple(_text(operator, _FIRST) for operator in _tables(plan, _PLAN_OPERATORS)),
        )


def _offset(table: Table, field: int) -> int:
    """Where a field is, relative to its table; 0 if it isn't there."""
    offset: int = table.Offset(4 + 2 * field)
    return offset


def _tables(table: Table, field: int) -> tuple[Table, ...]:
    offset = _offset(table, field)
    if not offset:
        return ()
    start = table.Vector(offset)
    size = UOffsetTFlags.bytewidth
    return tuple(
        Table(table.Bytes, table.Indirect(start + size * place))
        for place in range(table.VectorLen(offset))
    )


def _text(table: Table, field: int) -> str:
    offset = _offset(table, field)
    return bytes(table.String(offset + table.Pos)).decode() if offset else ""
