"""How a fetch process is told where to fetch from, and as whom, without a trace of it.

Pants writes what a process is given to its log, its sandboxes, its store and, with a remote cache,
to other machines: environment, command line and input files alike. So a fetch process is given the
sizes and hashes of files alone, and asks a Unix socket of the Pants that started it for the rest:
repository, names, and the user's variables, the token among them. Nothing of that is on a disk, and
the process's cache key is the content that it fetches. The other way, the socket carries progress.

Standard library and Python 3.9 only, because Pants and the fetch process import this module.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import stat
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Callable, Dict, Mapping, Optional, Tuple, Type

# The variables that say which hub, as whom, through which proxy, and where the user's caches are.
VARIABLES = (
    "HOME",
    "XDG_CACHE_HOME",
    "HF_ENDPOINT",
    "HF_HOME",
    "HF_HUB_CACHE",
    "HUGGINGFACE_HUB_CACHE",
    "HF_HUB_DISABLE_IMPLICIT_TOKEN",
    "HF_HUB_OFFLINE",
    "HF_TOKEN",
    "HF_TOKEN_PATH",
    "HUGGING_FACE_HUB_TOKEN",
    "ALL_PROXY",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "NO_PROXY",
    "all_proxy",
    "https_proxy",
    "http_proxy",
    "no_proxy",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
)
# Not TMPDIR, which a sandbox doesn't have; and short, because the path of a socket is at most 103
# bytes long on macOS.
_TEMPORARY = Path("/tmp")
_LINE_BYTES = 64 << 10
_ANSWER_SECONDS = 30.0

# The sockets that this process listens on, with the number of `with` blocks that want each.
_open: Dict[Path, Tuple[socket.socket, int]] = {}
_open_lock = threading.Lock()


class ChannelError(Exception):
    """The channel can't be opened, or nobody answers on it: where, why, and the remedy."""


@dataclass(frozen=True)
class FetchOrder:
    """What a fetch process is told beside the sizes and hashes of its files.

    `paths` maps each sha256 to the file's path in the repository `repo` at `commit`; `environment`
    has those of VARIABLES that the user has set.
    """

    repo: str
    revision: str
    commit: str
    paths: Mapping[str, str]
    environment: Mapping[str, str]

    def __repr__(self) -> str:
        # Whatever prints an order must not print a token.
        return f"FetchOrder({self.repo!r}, {self.commit!r}, {len(self.paths)} files)"


def socket_path(pid: int, request: bytes) -> Path:
    """Where the Pants with this process id answers the process that has this request."""
    name = f"{pid}-{hashlib.sha256(request).hexdigest()[:32]}"
    return _TEMPORARY / f"model-export-hub-{os.getuid()}" / name


class Listener:
    """Answers the fetch process that has `request`, while the `with` block lasts.

    `report` is called with each line of its progress, in a thread of this listener. Listeners of
    equal requests, which name the same content, are answered by the first of them. Raises
    ChannelError.
    """

    def __init__(
        self, request: bytes, order: FetchOrder, report: Callable[[str], None] = lambda line: None
    ) -> None:
        self._path = socket_path(os.getpid(), request)
        self._answer = json.dumps(asdict(order)).encode() + b"\n"
        self._report = report

    def __enter__(self) -> Listener:
        with _open_lock:
            known = _open.get(self._path)
            if known is not None:
                _open[self._path] = (known[0], known[1] + 1)
                return self
            server = _bind(self._path)
            _open[self._path] = (server, 1)
        threading.Thread(target=self._serve, args=(server,), daemon=True).start()
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        with _open_lock:
            server, users = _open[self._path]
            if users > 1:
                _open[self._path] = (server, users - 1)
                return
            del _open[self._path]
            self._path.unlink(missing_ok=True)
        # A thread in accept() wakes up with an error.
        with contextlib.suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)
        server.close()

    def _serve(self, server: socket.socket) -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        # A process that is gone has its own exit code to report.
        with connection, contextlib.suppress(OSError), connection.makefile("rb") as lines:
            connection.sendall(self._answer)
            while line := lines.readline(_LINE_BYTES):
                self._report(line.decode(errors="replace").strip())


class Channel:
    """The fetch process's end: `order` is what it was told."""

    def __init__(self, connection: socket.socket, order: FetchOrder) -> None:
        self.order = order
        self._connection = connection

    def report(self, line: str) -> None:
        """Send one line of progress; whether somebody reads it doesn't matter."""
        with contextlib.suppress(OSError):
            self._connection.sendall(line.encode(errors="replace") + b"\n")


def ask(request: bytes) -> Channel:
    """Ask the Pants that started this process. Raises ChannelError."""
    path = socket_path(os.getppid(), request)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(_ANSWER_SECONDS)
    try:
        _check_folder(path.parent)
        connection.connect(str(path))
        with connection.makefile("rb") as lines:
            answer = lines.readline()
        return Channel(connection, FetchOrder(**json.loads(answer)))
    except (OSError, ValueError, TypeError) as error:
        connection.close()
        raise ChannelError(
            f"{path}: no Pants answers there ({type(error).__name__}). A fetch runs on the machine "
            "of the Pants that starts it, and asks it where to fetch from: don't run it remotely "
            "or by hand."
        ) from error


def _bind(path: Path) -> socket.socket:
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        _check_folder(path.parent)
        # Of a process with the same id, long gone.
        path.unlink(missing_ok=True)
        server.bind(str(path))
        path.chmod(0o600)
        server.listen()
    except OSError as error:
        server.close()
        raise ChannelError(
            f"{path}: can't listen there ({error.strerror or error}). Make {path.parent.parent} "
            "writable."
        ) from error
    return server


def _check_folder(folder: Path) -> None:
    """Check that nobody else could have put a socket into `folder`; raises ChannelError."""
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise ChannelError(
            f"{folder}: isn't a folder of yours alone (mode 0700), so a token can't pass through "
            "it. Remove it."
        )
