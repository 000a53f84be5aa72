"""The surroundings of an export, each checked in an interpreter of its own: they don't come off."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from model_export.exporter import hermetic

_SOURCES = Path(hermetic.__file__).resolve().parents[2]

_PRELUDE = """
import json, os, socket, sys, tempfile
from pathlib import Path
from model_export.exporter import hermetic
from model_export.exporter.errors import ExportError
guard = hermetic.enter(Path.cwd() / "private dir")
"""


def _run(code: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _PRELUDE + code],
        cwd=cwd,
        env={
            "PYTHONPATH": str(_SOURCES),
            "PATH": os.environ.get("PATH", ""),
            **environment,
        },
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("attempt", "address"),
    [
        ("socket.create_connection(('127.0.0.1', 9), timeout=1)", "127.0.0.1:9"),
        ("socket.socket().connect_ex(('127.0.0.1', 9))", "127.0.0.1:9"),
        ("socket.socket(socket.AF_INET6).connect(('::1', 9))", "::1:9"),
        ("socket.getaddrinfo('models.invalid', 443)", "models.invalid:443"),
        ("socket.gethostbyname('models.invalid')", "models.invalid"),
        (
            "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', 9))",
            "127.0.0.1:9",
        ),
        (
            "__import__('urllib.request').request.urlopen('http://models.invalid/x')",
            "models.invalid",
        ),
    ],
)
def test_a_connection_names_its_address(attempt: str, address: str, tmp_path: Path) -> None:
    result = _run(f"{attempt}\n", tmp_path)
    assert result.returncode != 0
    assert f"something tried to reach {address}" in result.stderr


def test_a_swallowed_attempt_is_reported_at_the_end(tmp_path: Path) -> None:
    code = """
try:
    socket.create_connection(("127.0.0.1", 9))
except Exception:
    pass
guard.raise_if_used()
"""
    result = _run(code, tmp_path)
    assert result.returncode != 0
    assert "tried to reach 127.0.0.1:9" in result.stderr


def test_sockets_of_this_machine_still_work(tmp_path: Path) -> None:
    code = """
left, right = socket.socketpair()
left.sendall(b"x")
assert right.recv(1) == b"x"
server = socket.socket(socket.AF_UNIX)
server.bind("s")
server.listen()
socket.socket(socket.AF_UNIX).connect("s")
guard.raise_if_used()
"""
    assert _run(code, tmp_path).returncode == 0


def test_environment_is_fixed_and_private(tmp_path: Path) -> None:
    code = "print(json.dumps([dict(os.environ), tempfile.gettempdir(), str(Path.home())]))"
    result = _run(
        code, tmp_path, HF_TOKEN="secret", LC_ALL="de_DE.UTF-8", HOME="/x", OMP_NUM_THREADS="1"
    )
    environment, temporary, home = json.loads(result.stdout)
    assert "HF_TOKEN" not in environment
    assert environment["LC_ALL"] == "C.UTF-8"
    assert environment["HF_HUB_OFFLINE"] == "1"
    assert environment["OMP_NUM_THREADS"] == "1"
    assert temporary == str(tmp_path / "private dir" / "tmp")
    assert home == str(tmp_path / "private dir" / "home")
    assert Path(temporary).is_dir() and Path(home).is_dir()


def test_a_pinned_computation_is_torchs_own(tmp_path: Path) -> None:
    result = _run(
        "hermetic.pin_computation()\n"
        "import torch\n"
        "print(torch.backends.cpu.get_cpu_capability(), torch.get_num_threads())\n",
        tmp_path,
        ATEN_CPU_CAPABILITY="avx2",
        OMP_NUM_THREADS="2",
    )
    assert result.stdout.split() == ["DEFAULT", "1"], result.stderr
