"""Compiles locks with uv, keeping the versions already locked unless asked to upgrade."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Iterable, Sequence

from uv import find_uv_bin

from locks.lock_file import header, parse_lock
from locks.resolves import RESOLVES, LockedResolve


class CompileError(RuntimeError):
    """uv found no versions, or reached no index; its own message is part of this one."""

    def __init__(self, what: str, message: str) -> None:
        super().__init__(f"uv can't compile {what}:\n{message.strip()}")


def compile_locks(root: Path, resolves: Iterable[LockedResolve], *, upgrade: bool) -> None:
    """Writes `lock.txt` of each resolve, each in one step. Raises CompileError."""
    shared: str | None = None
    for resolve in resolves:
        if resolve.shared_pins and shared is None:
            shared = _shared_pins(root, upgrade=upgrade)
        requirements = resolve.requirements(root).read_text()
        lock = resolve.lock(root)
        earlier = lock.read_text() if lock.exists() and not upgrade else ""
        pinned = _uv_compile(
            resolve.name,
            requirements,
            python=resolve.python,
            earlier=earlier,
            constraints=(shared or "") if resolve.shared_pins else "",
            options=("--generate-hashes", *(() if resolve.dependencies else ("--no-deps",))),
        )
        _replace(lock, header(requirements) + pinned)


def _shared_pins(root: Path, *, upgrade: bool) -> str:
    """One version of everything that any resolve with shared pins needs, as constraints."""
    sharing = [resolve for resolve in RESOLVES if resolve.shared_pins]
    earlier = sorted(
        {
            f"{pin.name}=={pin.version}" + (f" ; {pin.marker}" if pin.marker else "")
            for resolve in sharing
            if resolve.lock(root).exists() and not upgrade
            for pin in parse_lock(resolve.lock(root).read_text())
        }
    )
    return _uv_compile(
        " + ".join(resolve.name for resolve in sharing),
        "\n".join(resolve.requirements(root).read_text() for resolve in sharing),
        python=sharing[0].python,
        earlier="\n".join(earlier),
    )


def _uv_compile(
    what: str,
    requirements: str,
    *,
    python: str,
    earlier: str,
    constraints: str = "",
    options: Sequence[str] = (),
) -> str:
    """The pins of `requirements` on every platform; those in `earlier` are kept where they fit."""
    with tempfile.TemporaryDirectory() as folder:
        asked = Path(folder, "asked.in")
        constrained = Path(folder, "shared.txt")
        out = Path(folder, "out.txt")
        asked.write_text(requirements)
        constrained.write_text(constraints)
        out.write_text(earlier)
        # No annotation: it would name these files. No index option: a lock names no host.
        command = [find_uv_bin(), "pip", "compile", "--quiet", "--universal", "--python"]
        command += [sys.executable, "--python-version", python, "--no-header", "--no-annotate"]
        command += [*options, "--constraints", str(constrained), "--output-file", str(out)]
        result = subprocess.run(
            [*command, str(asked)], capture_output=True, text=True, cwd=folder, check=False
        )
        if result.returncode != 0:
            raise CompileError(what, result.stderr)
        return out.read_text()


def _replace(path: Path, text: str) -> None:
    making = path.with_name(f"{path.name}.making")
    making.write_text(text)
    os.replace(making, path)
