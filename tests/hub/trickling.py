"""A server that never comes to the end of its headers.

Python 3.9, as the rest of the hub.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def trickling_headers() -> Iterator[str]:
    """Its address, while the block lasts: each answer sends a byte of a header now and then."""
    server = socket.create_server(("127.0.0.1", 0))
    ending = threading.Event()

    def serve() -> None:
        while not ending.is_set():
            connection, _ = server.accept()
            with connection, contextlib.suppress(OSError):
                connection.sendall(b"HTTP/1.1 200 OK\r\nX-Long: ")
                while not ending.wait(0.05):
                    connection.sendall(b"x")

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
    finally:
        ending.set()
        # Wakes an accept() that waits.
        with contextlib.suppress(OSError):
            socket.create_connection(server.getsockname()).close()
        thread.join()
        server.close()
