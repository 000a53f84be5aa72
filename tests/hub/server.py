"""A hub of models on this machine, for an unmodified huggingface_hub client.

What it answers follows the hub's HTTP API as huggingface_hub 2.4.0 reads it: model info, refs,
trees, paths, and files, of which those in LFS lie on another host. It speaks plain LFS; xet, which
a client may leave out, it doesn't offer. Python 3.9, because the plugin's tests run it too.
"""

from __future__ import annotations

import fnmatch
import sys
import threading
from collections.abc import Iterable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType

from hub.answers import CdnHandler, HubHandler
from hub.faults import Fault, Order
from hub.recorded import RecordedRequest
from hub.repositories import Content, HubRepository

ALL_METHODS = ("GET", "HEAD", "POST")


class Hub:
    """The hub and its CDN, each on a port of its own; a context manager.

    `tokens` maps a token to the ids of the gated and private repositories that it opens.
    `requests` has every request so far.
    """

    def __init__(
        self,
        repositories: Iterable[HubRepository] = (),
        tokens: Mapping[str, Iterable[str]] | None = None,
    ) -> None:
        self.repositories = {repository.id: repository for repository in repositories}
        self.tokens = {token: frozenset(ids) for token, ids in (tokens or {}).items()}
        self.renamed: dict[str, str] = {}
        self.tree_page = 1000
        self.requests: list[RecordedRequest] = []
        self.closing = threading.Event()
        self._orders: list[Order] = []
        self._lock = threading.Lock()
        self._servers = [
            _Server(self, "hub", HubHandler),
            _Server(self, "cdn", CdnHandler),
        ]
        self._threads = [
            threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
            for server in self._servers
        ]

    @property
    def endpoint(self) -> str:
        """What `HF_ENDPOINT` has to be."""
        return f"http://127.0.0.1:{self._servers[0].server_port}"

    @property
    def cdn(self) -> str:
        """Where LFS files lie: another host name and another port."""
        return f"http://localhost:{self._servers[1].server_port}"

    def add(self, repository: HubRepository) -> HubRepository:
        """Serve another repository, or another one in the place of that id."""
        self.repositories[repository.id] = repository
        return repository

    def rename(self, old: str, new: str) -> None:
        """Give a repository another id; the hub then redirects from the old one."""
        repository = self.repositories.pop(old)
        repository.id = new
        self.repositories[new] = repository
        self.renamed[old] = new

    def misbehave(
        self,
        fault: Fault,
        path: str = "*",
        times: int = 1,
        methods: tuple[str, ...] = ALL_METHODS,
    ) -> None:
        """Order a fault for the next `times` requests whose path (without query) matches."""
        with self._lock:
            self._orders.append(Order(fault, path, methods, times))

    def behave(self) -> None:
        """Forget all faults that are left."""
        with self._lock:
            self._orders.clear()

    def record(self, request: RecordedRequest) -> Fault | None:
        """Remember a request; returns the fault that was ordered for it."""
        path = request.path.partition("?")[0]
        with self._lock:
            self.requests.append(request)
            for order in self._orders:
                matches = fnmatch.fnmatchcase(path, order.path)
                if order.times > 0 and matches and request.method in order.methods:
                    order.times -= 1
                    return order.fault
        return None

    def stored(self, sha256: str) -> Content | None:
        """The LFS file with this hash, of any repository."""
        for repository in list(self.repositories.values()):
            for files in list(repository.commits.values()):
                for file in files.values():
                    if file.lfs and file.content.sha256 == sha256:
                        return file.content
        return None

    def __enter__(self) -> Hub:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.closing.set()
        for server, thread in zip(self._servers, self._threads):
            server.shutdown()
            server.server_close()
            thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # A client that keeps its connection open would keep the hub from closing.
    block_on_close = False
    request_queue_size = 64

    def __init__(self, hub: Hub, name: str, handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.hub = hub
        self.name = name

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hung up is no news; anything else is shown."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]
