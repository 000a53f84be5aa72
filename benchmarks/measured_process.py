"""A child process and what it cost."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Cost:
    """CPU and wall-clock seconds of a process with its children, and its peak memory in bytes."""

    cpu: float
    wall: float
    peak: int


class ChildFailed(RuntimeError):
    """A measured process that ended with an error; the message has its last lines."""


def import_path() -> str:
    """PYTHONPATH for a child, in any folder, that imports what this process can."""
    return os.pathsep.join(os.path.abspath(path) for path in sys.path if path)


def measure(arguments: Sequence[str], cwd: Path, log: Path) -> Cost:
    """Run this interpreter with `arguments` in `cwd`, its output going to `log`.

    Raises ChildFailed if it doesn't exit with 0.
    """
    environment = {
        **os.environ,
        "PYTHONPATH": import_path(),
        # ExecuTorch calls flatc, which lies there (1.3.1).
        "PATH": os.pathsep.join((os.path.join(sys.prefix, "bin"), os.environ.get("PATH", ""))),
        "HF_HUB_OFFLINE": "1",
        "CI": "true",
    }
    start = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=cwd,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        tail = log.read_text(errors="replace").splitlines()[-5:]
        raise ChildFailed(f"exit code {process.returncode}:\n" + "\n".join(tail))
    # ru_maxrss is in KiB on Linux and in bytes on macOS.
    scale = 1 if sys.platform == "darwin" else 1024
    return Cost(usage.ru_utime + usage.ru_stime, time.monotonic() - start, usage.ru_maxrss * scale)
