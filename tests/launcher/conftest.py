"""Runs functions of build-support/bootstrap.bash in a bash of their own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

_ROOT = Path.cwd()

Bash = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """An empty home folder."""
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


@pytest.fixture
def bash(home: Path) -> Bash:
    """Starts a script that has sourced bootstrap.bash, with no environment but HOME and PATH."""

    def start(
        script: str, *, path: str = "/usr/bin:/bin", env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["/bin/bash", "-uc", f"source {_ROOT}/build-support/bootstrap.bash\n{script}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={"HOME": str(home), "PATH": path, **(env or {})},
            cwd=home,
            start_new_session=True,
        )

    return start


@pytest.fixture
def executable(tmp_path: Path) -> Callable[[str, str], Path]:
    """Writes an executable script under a path relative to the test's own folder."""

    def write(name: str, script: str) -> Path:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"#!/bin/sh\n{script}\n")
        os.chmod(file, 0o755)
        return file

    return write
