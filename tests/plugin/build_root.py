"""Whole runs of Pants, in a repository with one target `m:x` whose model is on a hub of the test.

The store is the user's own, as for every test that exports: the environments are large.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, Tuple

from model_export.checkpoint_lock import LOCK_FILE, CheckpointLock
from model_export.manifest import MANIFEST_FILE, Manifest, record_files
from model_export.plugin import register

LOCKS = ("3rdparty/hub/lock.txt", "3rdparty/onnx/lock.txt")
SETTINGS = """\
[GLOBAL]
pants_version = "2.17.1"
pythonpath = ["{sources}"]
backend_packages = ["model_export.plugin", "pants.backend.python"]
pants_workdir = "%(buildroot)s/workdir"
pants_subprocessdir = "%(buildroot)s/pids"

[anonymous-telemetry]
enabled = false

[source]
root_patterns = ["/"]

[python]
enable_resolves = true
default_resolve = "onnx"
pip_version = "latest"
interpreter_constraints = ["CPython==3.11.*"]

[python.resolves]
hub = "3rdparty/hub/lock.txt"
onnx = "3rdparty/onnx/lock.txt"

[python-bootstrap]
search_path = ["<PATH>", "<PYENV>"]
"""


@dataclass(frozen=True)
class BuildRoot:
    """A repository with Pants, and one target `m:x`."""

    root: Path

    @classmethod
    def make(cls, root: Path, build: str) -> BuildRoot:
        """A new one in the folder `root`, with `build` as its only BUILD file."""
        sources = Path(register.__file__).resolve().parents[2]
        (root / "m").mkdir(parents=True)
        (root / "pants.toml").write_text(SETTINGS.format(sources=sources), encoding="utf-8")
        for lock in LOCKS:
            (root / lock).parent.mkdir(parents=True)
            shutil.copy(lock, root / lock)
        made = cls(root)
        made.write(build)
        return made

    def write(self, build: str) -> None:
        """Change the BUILD file."""
        (self.root / "m/BUILD").write_text(build, encoding="utf-8")

    def pants(
        self, *arguments: str, endpoint: str, prefix: Tuple[str, ...] = ()
    ) -> subprocess.CompletedProcess[str]:
        """Run Pants, as nobody that the hub knows."""
        kept = ("HOME", "PATH", "PYENV_ROOT", "XDG_CACHE_HOME")
        return subprocess.run(
            [*prefix, sys.executable, "-m", "pants", *arguments],
            cwd=self.root,
            env={
                **{name: os.environ[name] for name in kept if name in os.environ},
                **{key: os.environ[key] for key in os.environ if key.startswith("PANTS_PEX_CLI_")},
                "PYTHONPATH": os.pathsep.join(sys.path),
                "NO_SCIE_WARNING": "1",
                "HF_ENDPOINT": endpoint,
                # Neither a token nor a cache of whoever runs this test.
                "HF_HOME": str(self.root / "hf"),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=900,
        )

    def builds(self, *options: str, endpoint: str, prefix: Tuple[str, ...] = ()) -> str:
        """What Pants says of a `package` that has to succeed."""
        done = self.pants(*options, "package", "m:x", endpoint=endpoint, prefix=prefix)
        assert done.returncode == 0, done.stdout[-4000:]
        return done.stdout

    def refused(self, *arguments: str, endpoint: str) -> str:
        """The line that a run which has to fail says of the target."""
        done = self.pants(*arguments, endpoint=endpoint)
        assert done.returncode == 1, done.stdout[-4000:]
        assert "Traceback" not in done.stdout
        lines = [line for line in done.stdout.splitlines() if "m:x: " in line]
        assert len(lines) == 1, done.stdout
        return lines[0][lines[0].index("m:x: ") :]

    def lock(self) -> CheckpointLock:
        """What lock-checkpoints wrote."""
        return CheckpointLock.from_json((self.root / LOCK_FILE).read_bytes())

    @property
    def artifact(self) -> Path:
        """The folder that `package` wrote."""
        return self.root / "dist/m/x"

    def manifest(self) -> Manifest:
        """That of the artifact."""
        return Manifest.from_json((self.artifact / MANIFEST_FILE).read_text(encoding="utf-8"))

    def files(self) -> Dict[str, str]:
        """Path and sha256 of every file of the artifact, and its whole manifest."""
        return {
            MANIFEST_FILE: self.manifest().to_json(),
            **{record.path: record.sha256 for record in record_files(self.artifact)},
        }


def end_daemons(folder: Path) -> None:
    """End the daemons of the build roots in `folder`."""
    for file in folder.glob("*/pids/*/pantsd/pid"):
        try:
            os.kill(int(file.read_text()), 15)
        except (ProcessLookupError, ValueError):
            continue
