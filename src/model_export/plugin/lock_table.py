"""The table of what a run of `lock-checkpoints` changed, for people."""

from __future__ import annotations

from typing import List, Sequence

from model_export.checkpoint_lock import CheckpointLock, LockedCheckpoint

_HEADER = ("checkpoint", "commit", "files", "size", "licence", "access")
_COMMIT_DIGITS = 12


def changes_table(before: CheckpointLock, after: CheckpointLock) -> List[str]:
    """A line for each entry that is new, gone or another, below a header; empty if none is.

    A cell that changed reads `old -> new`; below an entry that was there before, a line for each
    file that is new (`+`), gone (`-`) or another (`~`).
    """
    rows: List[List[str]] = []
    details: List[List[str]] = []
    for key in sorted({*before.checkpoints, *after.checkpoints}):
        old, new = before.checkpoints.get(key), after.checkpoints.get(key)
        if old == new:
            continue
        detail: List[str] = []
        if old and new:
            cells = list(map(_change, _cells(old), _cells(new)))
            detail = _file_changes(old, new)
        elif new:
            cells = _cells(new)
        else:
            cells = ["removed", *_cells(before.checkpoints[key])[1:]]
        rows.append([key, *cells])
        details.append(detail)
    if not rows:
        return []
    widths = [max(map(len, column)) for column in zip(_HEADER, *rows)]
    lines = [_line(_HEADER, widths)]
    for row, detail in zip(rows, details):
        lines.extend([_line(row, widths), *detail])
    return lines


def size_text(size: int) -> str:
    """Bytes in the unit that people would use."""
    amount = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


def _cells(entry: LockedCheckpoint) -> List[str]:
    return [
        entry.commit[:_COMMIT_DIGITS],
        str(len(entry.files)),
        size_text(entry.size),
        entry.license or "unknown",
        f"gated ({entry.gated})" if entry.gated else "open",
    ]


def _change(old: str, new: str) -> str:
    return new if old == new else f"{old} -> {new}"


def _file_changes(old: LockedCheckpoint, new: LockedCheckpoint) -> List[str]:
    before = {file.path: file for file in old.files}
    after = {file.path: file for file in new.files}
    lines: List[str] = []
    for path in sorted({*before, *after}):
        if path not in before:
            lines.append(f"  + {path} ({size_text(after[path].size)})")
        elif path not in after:
            lines.append(f"  - {path} ({size_text(before[path].size)})")
        elif before[path] != after[path]:
            sizes = _change(size_text(before[path].size), size_text(after[path].size))
            lines.append(f"  ~ {path} ({sizes})")
    return lines


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths)).rstrip()
