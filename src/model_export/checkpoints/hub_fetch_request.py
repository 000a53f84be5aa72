"""The contract from the plugin to a fetch process: what one fetch is asked for.

Its JSON is the cache key of the process: sizes and hashes alone, so that a fetch is shared by all
targets, commits, mirrors and users that want the same bytes. Standard library and Python 3.9 only,
because Pants imports this module.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Tuple, Union

# The named cache in which partial downloads outlive a process, and where it finds that.
PARTIAL_CACHE = "model_export_hub"
PARTIAL_FOLDER = f".cache/{PARTIAL_CACHE}"
# A larger file is fetched by a process of its own, and resumed by the next build.
LARGE_BYTES = 8 << 20


@dataclass(frozen=True, order=True)
class Content:
    """What a file has to be: sha256 in lower-case hex, and size in bytes."""

    sha256: str
    size: int


@dataclass(frozen=True)
class FetchRequest:
    """The contents to fetch."""

    files: Tuple[Content, ...]

    def to_json(self) -> str:
        """Canonical JSON: sorted, each content once, no white space."""
        files = [{"sha256": file.sha256, "size": file.size} for file in sorted(set(self.files))]
        return json.dumps({"files": files}, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: Union[str, bytes]) -> FetchRequest:
        """Read what `to_json` wrote."""
        return cls(tuple(Content(**file) for file in json.loads(text)["files"]))


def shown_size(size: int) -> str:
    """A number of bytes as people write it, in decimal units."""
    for unit, bytes_of_unit in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= bytes_of_unit:
            return f"{size / bytes_of_unit:.1f} {unit}"
    return f"{size} bytes"
