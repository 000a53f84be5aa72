"""The surroundings of an export: a fixed environment, private folders, fixed seeds, no network."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from model_export.exporter.errors import ExportError

# What may pass in from outside. The last group steers how fast the machine computes, and an export
# gives the same bytes whatever they say; tests vary them to prove it.
PASSED_VARIABLES = (
    "PATH",
    "LD_LIBRARY_PATH",
    "DYLD_LIBRARY_PATH",
    "PYTHONHASHSEED",
    "OMP_NUM_THREADS",
    "ATEN_CPU_CAPABILITY",
    "ONEDNN_MAX_CPU_ISA",
    "OPENBLAS_CORETYPE",
    "OPENBLAS_L2_SIZE",
)

FIXED_VARIABLES = {
    "CI": "true",  # OpenVINO's telemetry writes to $HOME and connects without it (2026.3.1).
    "NNCF_CI": "1",  # NNCF's telemetry (3.4.0).
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "OMP_WAIT_POLICY": "PASSIVE",  # See plugin/processes.py, which can't reach this process.
    "LC_ALL": "C.UTF-8",
    "LANG": "C.UTF-8",
    "TZ": "UTC",
    "USER": "model-export",  # torch names its cache folder after the user.
    "LOGNAME": "model-export",
}

_NETWORK_EVENTS = frozenset(
    {
        "socket.connect",
        "socket.sendto",
        "socket.sendmsg",
        "socket.getaddrinfo",
        "socket.gethostbyname",
        "socket.gethostbyaddr",
    }
)


class NetworkGuard:
    """Turns each attempt to reach the network into an error that names the address.

    Libraries may swallow that error and go on without what they wanted, so the first attempt is
    kept, and `raise_if_used` reports it once more at the end.
    """

    def __init__(self) -> None:
        self._attempt: str | None = None

    def install(self) -> None:
        """Add the audit hook; it stays until the interpreter ends."""
        sys.addaudithook(self._audit)

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        if event not in _NETWORK_EVENTS:
            return
        address = _address_of(event, args)
        if address is None:
            return
        if self._attempt is None:
            self._attempt = address
        raise self._error(address)

    def raise_if_used(self) -> None:
        """Raise ExportError if anything tried to reach the network, however it coped."""
        if self._attempt is not None:
            raise self._error(self._attempt)

    @staticmethod
    def _error(address: str) -> ExportError:
        return ExportError(
            "network",
            f"is closed during an export, but something tried to reach {address}",
            "Put what it wanted to fetch into the checkpoint",
        )


def _address_of(event: str, args: tuple[Any, ...]) -> str | None:
    """`host:port` of a network audit event; None for what stays on this machine's file system."""
    if event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
        address = args[1]
        if not isinstance(address, tuple):  # A path: AF_UNIX. None: an already connected socket.
            return None
        return f"{address[0]}:{address[1]}"
    host = args[0]
    if isinstance(host, bytes):
        host = host.decode(errors="replace")
    port = args[1] if event == "socket.getaddrinfo" and len(args) > 1 else None
    return f"{host}:{port}" if port is not None else f"{host}"


def enter(private: Path) -> NetworkGuard:
    """Give this process its own HOME and TMPDIR below `private`, a fixed environment, no network.

    To be called before torch is imported: libraries read the environment as they load.
    """
    home, temporary = private / "home", private / "tmp"
    for folder in (home, temporary):
        folder.mkdir(parents=True, exist_ok=True)
    passed = {name: os.environ[name] for name in PASSED_VARIABLES if name in os.environ}
    os.environ.clear()
    os.environ.update(passed)
    os.environ.update(FIXED_VARIABLES)
    os.environ.update(
        HOME=str(home),
        TMPDIR=str(temporary),
        XDG_CACHE_HOME=str(home / ".cache"),
        TORCHINDUCTOR_CACHE_DIR=str(temporary / "torchinductor"),
    )
    # flatc and other tools of the resolve lie beside its interpreter, which is not on PATH there.
    tools = str(Path(sys.prefix) / "bin")
    os.environ["PATH"] = os.pathsep.join(filter(None, (tools, os.environ.get("PATH", ""))))
    os.umask(0o022)
    guard = NetworkGuard()
    guard.install()
    return guard


def seed() -> None:
    """Seed every generator that tracing or sampling may draw from."""
    import random

    import numpy
    import torch

    random.seed(0)
    numpy.random.seed(0)
    torch.manual_seed(0)


# What makes floating-point results the same on every x86-64 CPU: one thread, and the oldest
# instruction set of torch, oneDNN (in torch and OpenVINO), MKL and OpenBLAS.
PINNED_COMPUTATION = {
    "OMP_NUM_THREADS": "1",
    "ATEN_CPU_CAPABILITY": "default",
    "ONEDNN_MAX_CPU_ISA": "SSE41",
    "MKL_NUM_THREADS": "1",
    "MKL_CBWR": "COMPATIBLE",
    "OPENBLAS_NUM_THREADS": "1",
    "OPENBLAS_CORETYPE": "Prescott",
}


def pin_computation() -> None:
    """Compute the same on every CPU of an architecture, slowly: to calibrate, or to merge.

    To be called before torch is imported. ONNX Runtime reads none of these (docs/quantization.md).
    """
    os.environ.update(PINNED_COMPUTATION)
