"""What the test hub remembers of a request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class RecordedRequest:
    """A request as it came in: to which server ("hub" or "cdn"), and what it carried."""

    server: str
    method: str
    path: str
    headers: Mapping[str, str]

    @property
    def token(self) -> str | None:
        """The token that it carried, wherever in its headers or address."""
        sent = self.headers.get("authorization")
        return sent[len("Bearer ") :] if sent and sent.startswith("Bearer ") else sent
