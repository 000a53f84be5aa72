"""From an id in a BUILD file to an artifact, by whole runs of Pants: lock, fetch, export, verify.

A note in config.json makes the bytes of each run new, so that what is asked of the hub is known.
"""

from __future__ import annotations

import array
import os
import re
import shutil
import subprocess
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Iterator

import pytest

from hub.repositories import HubRepository
from hub.server import Hub
from hub.tiny_lora import merged_weights, tiny_lora
from hub.tiny_qwen3 import Weight, tiny_qwen3
from model_export.checkpoint_lock import LOCK_FILE
from plugin.build_root import BuildRoot, end_daemons

REPO, LORA = "acme/tiny-qwen3", "acme/tiny-lora"
BUILD = """\
export_model(
    name="x",
    model="acme/tiny-qwen3",
    config={{"export_format": "onnx", "dynamic": True, "optimize": {optimize}}},
    for_generation=True,
    multi_token_decode=True,
    {more}
)
"""
ISOLATED = ("unshare", "--map-root-user", "--net")
# A port that nothing listens on.
NO_HUB = "http://127.0.0.1:9"


def _build(optimize: bool = True, more: str = "") -> str:
    return BUILD.format(optimize=optimize, more=more)


def _serve() -> Hub:
    if "PANTS_PEX_CLI_VERSION" not in os.environ:
        pytest.skip("needs the pex CLI that ./pants builds")
    model = HubRepository(REPO, tiny_qwen3(uuid.uuid4().hex))
    return Hub([model, HubRepository(LORA, tiny_lora())])


@pytest.fixture(scope="module")
def build_roots(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for build roots, whose daemons end with the tests."""
    folder = tmp_path_factory.mktemp("roots")
    yield folder
    end_daemons(folder)


@dataclass(frozen=True)
class FirstBuild:
    """A repository whose model was locked and built, the hub, and what Pants said meanwhile."""

    hub: Hub
    commit: str
    root: BuildRoot
    unlocked: str
    asked_before_lock: int
    said: str

    def copy(self, folder: Path, build: str) -> BuildRoot:
        """Another repository, with the same lock."""
        made = BuildRoot.make(folder, build)
        shutil.copy(self.root.root / LOCK_FILE, made.root / LOCK_FILE)
        return made


@pytest.fixture(scope="module")
def first(build_roots: Path) -> Iterator[FirstBuild]:
    with _serve() as hub:
        commit = hub.repositories[REPO].refs["refs/heads/main"]
        root = BuildRoot.make(build_roots / "first", _build())
        unlocked = root.refused("package", "m:x", endpoint=hub.endpoint)
        asked = len(hub.requests)
        locked = root.pants("lock-checkpoints", "m::", endpoint=hub.endpoint)
        assert locked.returncode == 0, locked.stdout[-4000:]
        said = root.builds(endpoint=hub.endpoint)
        yield FirstBuild(hub, commit, root, unlocked, asked, said)


def test_lock_and_build(first: FirstBuild) -> None:
    assert first.unlocked == (
        f"m:x: `model` {REPO!r} isn't locked: hub ids are pinned in {LOCK_FILE}, which has no "
        "entry for it. Lock it: ./pants lock-checkpoints m:x."
    )
    assert first.asked_before_lock == 0
    (entry,) = first.root.lock().checkpoints.values()
    assert (entry.key, entry.commit) == (f"{REPO}@main", first.commit)

    assert re.search(r"Completed: Fetch 2 files \(.*\) of acme/tiny-qwen3 \(m:x\)", first.said)
    manifest = first.root.manifest()
    assert manifest.checkpoint.source == "hub"
    assert manifest.checkpoint.identity == f"{REPO}@{first.commit}"
    files = first.hub.repositories[REPO].commits[first.commit]
    assert {file.path: file.sha256 for file in manifest.checkpoint.files} == {
        path: file.content.sha256 for path, file in files.items()
    }
    assert manifest.verification.status == "passed"
    assert (first.root.artifact / "decode.onnx").is_file()


def test_a_build_elsewhere_without_a_hub(first: FirstBuild, build_roots: Path) -> None:
    # The branch moves; the lock doesn't, and nobody asks.
    asked = len(first.hub.requests)
    first.hub.repositories[REPO].commit(tiny_qwen3("another"))
    second = first.copy(build_roots / "second", _build())
    second.builds(endpoint=first.hub.endpoint)
    assert len(first.hub.requests) == asked
    third = first.copy(build_roots / "third", _build())
    third.builds(endpoint=NO_HUB)
    assert first.root.files() == second.files() == third.files()


def test_a_build_in_an_empty_network_namespace(first: FirstBuild, build_roots: Path) -> None:
    """What was fetched is exported and verified there, and not taken from a cache."""
    if shutil.which("unshare") is None or subprocess.run([*ISOLATED, "true"]).returncode:
        pytest.skip("needs the right to make a network namespace (`unshare --map-root-user --net`)")
    offline = first.copy(build_roots / "offline", _build(optimize=False))
    said = offline.builds("--no-pantsd", endpoint=first.hub.endpoint, prefix=ISOLATED)
    assert "Completed: Export acme/tiny-qwen3@" in said
    assert "Completed: Verify m:x" in said
    assert (offline.artifact / "decode.onnx").is_file()


@pytest.fixture
def hub() -> Iterator[Hub]:
    with _serve() as hub:
        yield hub


def test_an_adapter_of_the_hub_is_merged(hub: Hub, build_roots: Path) -> None:
    """Into the very weights that W + alpha / rank * B @ A are, in float32."""
    commit = hub.repositories[LORA].refs["refs/heads/main"]
    here = BuildRoot.make(build_roots / "adapted", _build(more=f'adapter="{LORA}@{commit}",'))
    locked = here.pants("lock-checkpoints", "m:x", endpoint=hub.endpoint)
    assert locked.returncode == 0, locked.stdout[-4000:]
    # Its branch moves; the lock doesn't.
    hub.repositories[LORA].commit({"adapter_config.json": b"{}"})
    here.builds(endpoint=hub.endpoint)

    manifest = here.manifest()
    assert manifest.adapter is not None
    assert (manifest.adapter.source, manifest.adapter.identity) == ("hub", f"{LORA}@{commit}")
    files = hub.repositories[LORA].commits[commit]
    assert {file.path: file.sha256 for file in manifest.adapter.files} == {
        path: files[path].content.sha256
        for path in ("adapter_config.json", "adapter_model.safetensors")
    }
    assert manifest.checkpoint.identity.startswith(f"{REPO}@")
    assert manifest.verification.status == "passed"
    (decode,) = manifest.components
    content = b"".join(
        (here.artifact / file).read_bytes() for file in (decode.file, *decode.weights)
    )
    for name, weight in merged_weights().items():
        assert weight.to_bytes() in content or _transposed(weight).to_bytes() in content, name


def _transposed(weight: Weight) -> Weight:
    rows, columns = weight.shape
    values = (
        weight.values[row * columns + column] for column in range(columns) for row in range(rows)
    )
    return Weight((columns, rows), array.array("f", values))


def test_what_a_user_is_told(hub: Hub, build_roots: Path) -> None:
    here = BuildRoot.make(build_roots / "here", _build())
    assert here.pants("lock-checkpoints", "m:x", endpoint=hub.endpoint).returncode == 0

    here.write(_build(more='include=["*.txt"]'))
    assert here.refused("package", "m:x", endpoint=hub.endpoint) == (
        f"m:x: `model` {REPO!r} is locked in {LOCK_FILE} for another `include`, `exclude`, "
        "`gguf_file`, `allow_pickle` or `trust_remote_code`. Lock it anew, at the same commit: "
        "./pants lock-checkpoints m:x."
    )
    here.write(_build())
    lock = (here.root / LOCK_FILE).read_text(encoding="utf-8")
    (here.root / LOCK_FILE).write_text(lock.replace("config.json", "../evil"), encoding="utf-8")
    assert here.refused("package", "m:x", endpoint=hub.endpoint).startswith(
        f"m:x: `model` can't be looked up: {LOCK_FILE}: '{REPO}@main': the path '../evil' "
    )
    # Files of that size that the hub doesn't have.
    other = re.sub(r'"sha256": "[0-9a-f]{64}"', f'"sha256": "{"0" * 64}"', lock, count=1)
    (here.root / LOCK_FILE).write_text(other, encoding="utf-8")
    assert "isn't what the lock pins: its sha256 is " in here.refused(
        "package", "m:x", endpoint=hub.endpoint
    )
    (here.root / LOCK_FILE).write_text(lock, encoding="utf-8")
    assert here.refused("package", "m:x", endpoint=NO_HUB).startswith(
        f"m:x: `{REPO}/config.json` isn't in the hub cache, and no hub can be reached: "
    )
    hub.rename(REPO, "acme/renamed")
    renamed = here.refused("lock-checkpoints", f"--upgrade={REPO}", "m:x", endpoint=hub.endpoint)
    assert "acme/renamed" in renamed
