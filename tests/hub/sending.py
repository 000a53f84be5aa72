"""How an answer of the test hub goes over the wire, and what an ordered fault does to it."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler
from typing import Any

from hub.faults import (
    Before,
    Corrupt,
    Cut,
    Fault,
    IgnoreRange,
    Json,
    RedirectLoop,
    Slow,
    Stall,
    Status,
    WrongSize,
)
from hub.recorded import RecordedRequest
from hub.repositories import Content

_RANGE = re.compile(r"bytes=(\d*)-(\d*)")


class AnsweringHandler(BaseHTTPRequestHandler):
    """Records each request, applies the fault ordered for it, and else leaves it to `answer`."""

    protocol_version = "HTTP/1.1"
    # Without it a stalled client would keep a thread for ever.
    timeout = 60
    server: Any

    def answer(self) -> None:
        """Send the right answer to this request."""
        raise NotImplementedError

    def do_GET(self) -> None:
        self._handle()

    def do_HEAD(self) -> None:
        self._handle()

    def do_POST(self) -> None:
        self._handle()

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing: requests are recorded."""

    def _handle(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        self.body = self.rfile.read(length) if length else b""
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.fault: Fault | None = self.server.hub.record(
            RecordedRequest(self.server.name, self.command, self.path, headers)
        )
        fault = self.fault
        if isinstance(fault, Before):
            fault.action()
        if isinstance(fault, Status):
            self.send(fault.code, fault.body, fault.headers)
        elif isinstance(fault, RedirectLoop):
            self.send(302, b"", {"Location": self.path})
        elif isinstance(fault, Stall) and fault.after < 0:
            self._stall()
        elif isinstance(fault, Cut) and fault.after < 0:
            self._cut()
        else:
            self.answer()

    def send_json(self, document: object, headers: Mapping[str, str] | None = None) -> None:
        """Send 200 with a JSON document, changed as a fault may say."""
        if isinstance(self.fault, Json):
            document = self.fault.change(document)
        body = json.dumps(document).encode()
        self.send(200, body, {"Content-Type": "application/json", **(headers or {})})

    def send_refusal(self, status: int, code: str, message: str) -> None:
        """Send an error as the hub does: its code and message in headers, too."""
        headers = {"X-Error-Message": message, "Content-Type": "application/json"}
        if code:
            headers["X-Error-Code"] = code
        self.send(status, json.dumps({"error": message}).encode(), headers)

    def send(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        """Send an answer whose body is at hand."""
        self._send(status, Content(body), 0, len(body), headers)

    def send_content(self, content: Content, headers: Mapping[str, str]) -> None:
        """Send a file, or the range of it that was asked for."""
        asked = _RANGE.fullmatch(self.headers.get("Range", ""))
        if asked is None or isinstance(self.fault, IgnoreRange):
            self._send(200, content, 0, content.size, {**headers, "Accept-Ranges": "bytes"})
            return
        first, last = asked.groups()
        start = int(first) if first else max(content.size - int(last or 0), 0)
        stop = min(int(last) + 1, content.size) if first and last else content.size
        if start >= content.size:
            self.send(416, b"", {"Content-Range": f"bytes */{content.size}"})
            return
        where = f"bytes {start}-{stop - 1}/{content.size}"
        self._send(206, content, start, stop, {**headers, "Content-Range": where})

    def _send(
        self, status: int, content: Content, start: int, stop: int, headers: Mapping[str, str]
    ) -> None:
        fault = self.fault
        off = fault.difference if isinstance(fault, WrongSize) else 0
        self.send_response(status)
        for name, value in headers.items():
            if name == "X-Linked-Size":
                value = str(int(value) + off)
            self.send_header(name, value)
        moved = any(name == "X-Linked-Size" for name in headers)
        self.send_header("Content-Length", str(stop - start + (0 if moved else off)))
        self.end_headers()
        if self.command == "HEAD":
            return
        sent = 0
        for chunk in self._chunks(content, start, stop):
            if isinstance(fault, (Stall, Cut)) and sent + len(chunk) > fault.after:
                self._write(chunk[: fault.after - sent])
                if isinstance(fault, Stall):
                    self._stall()
                else:
                    self._cut()
                return
            self._write(chunk)
            sent += len(chunk)
        if off and not moved:
            self._cut()

    def _chunks(self, content: Content, start: int, stop: int) -> Iterator[bytes]:
        fault = self.fault
        for chunk in content.chunks(start, stop):
            if isinstance(fault, Corrupt) and 0 <= fault.position - start < len(chunk):
                at = fault.position - start
                chunk = chunk[:at] + bytes([chunk[at] ^ 1]) + chunk[at + 1 :]
            start += len(chunk)
            yield chunk

    def _write(self, data: bytes) -> None:
        fault = self.fault
        if not isinstance(fault, Slow):
            self.wfile.write(data)
            return
        step = max(fault.bytes_per_second // 20, 1)
        for position in range(0, len(data), step):
            if self.server.hub.closing.is_set():
                break
            self.wfile.write(data[position : position + step])
            time.sleep(0.05)

    def _stall(self) -> None:
        self.wfile.flush()
        self.server.hub.closing.wait()
        self._cut()

    def _cut(self) -> None:
        self.wfile.flush()
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)
