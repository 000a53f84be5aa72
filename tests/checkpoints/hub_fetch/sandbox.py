"""A fetch process in a sandbox of its own, as Pants starts it, against a hub of the test."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from hub.repositories import Content as HubContent
from hub.server import Hub
from model_export.checkpoints import hub_fetch
from model_export.checkpoints.hub_fetch_channel import FetchOrder, Listener
from model_export.checkpoints.hub_fetch_request import Content, FetchRequest

REPO = "acme/tiny"
TOKEN = "hf_SecretOfTheUser0123456789"
# Incompressible, and not a multiple of any buffer: 9 MiB and 17 bytes, so a large file.
WEIGHTS = hashlib.shake_256(b"weights").digest((9 << 20) + 17)
CONFIG = b'{"architectures": ["BertModel"]}'


@dataclass
class Fetched:
    """What a fetch process left and said."""

    exit_code: int
    stderr: str
    files: dict[str, bytes]
    reports: list[str]

    @property
    def last(self) -> str:
        return self.stderr.splitlines()[-1]


@dataclass
class Sandbox:
    """Runs fetch processes as Pants does: few variables, a folder of their own, a named cache."""

    hub: Hub
    home: Path
    root: Path
    runs: int = 0
    environment: dict[str, str] = field(default_factory=dict)

    def start(
        self, *names: str, content: Content | None = None
    ) -> tuple[Listener, list[str], Path]:
        repository = self.hub.repositories[REPO]
        commit = repository.refs["refs/heads/main"]
        files = repository.commits[commit]
        contents = {name: content or _content(files[name].content) for name in names}
        order = FetchOrder(
            repo=REPO,
            revision="main",
            commit=commit,
            paths={content.sha256: name for name, content in contents.items()},
            environment={
                "HOME": str(self.home),
                "HF_ENDPOINT": self.hub.endpoint,
                **self.environment,
            },
        )
        self.runs += 1
        folder = self.root / f"sandbox{self.runs}"
        (folder / ".cache").mkdir(parents=True)
        cache = self.root / "named_cache"
        cache.mkdir(exist_ok=True)
        (folder / ".cache/model_export_hub").symlink_to(cache)
        request = FetchRequest(tuple(contents.values())).to_json().encode()
        (folder / "request.json").write_bytes(request)
        reports: list[str] = []
        return Listener(request, order, reports.append), reports, folder

    def fetch(self, *names: str, content: Content | None = None) -> Fetched:
        listener, reports, folder = self.start(*names, content=content)
        with listener:
            process = self.process(folder)
            _, stderr = process.communicate(timeout=300)
        output = folder / "output"
        files = {path.name: path.read_bytes() for path in output.glob("*")}
        return Fetched(process.returncode, stderr, files, reports)

    def process(self, folder: Path) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [
                sys.executable,
                "-m",
                hub_fetch.__name__,
                "request.json",
                "output",
            ],
            cwd=folder,
            env={
                "PYTHONPATH": os.pathsep.join(str(Path(path).resolve()) for path in sys.path),
                "PYTHONDONTWRITEBYTECODE": "1",
                "LANG": "C.UTF-8",
            },
            stderr=subprocess.PIPE,
            text=True,
        )

    def refusal(self) -> str:
        """The last line of a fetch that has to fail, and to leave nothing but that line."""
        fetched = self.fetch("model.safetensors")
        assert (fetched.exit_code, fetched.files) == (1, {})
        assert TOKEN not in fetched.stderr and "Traceback" not in fetched.stderr
        return fetched.last


def _content(content: HubContent) -> Content:
    return Content(content.sha256, content.size)


def sha256(data: bytes) -> str:
    """In hex."""
    return hashlib.sha256(data).hexdigest()
