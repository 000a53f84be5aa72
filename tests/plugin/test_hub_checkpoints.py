"""A locked hub id becomes a folder, and the token that opens it is nowhere afterwards."""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, Iterator, List, Mapping, Tuple

import pytest
from pants.engine.addresses import Address
from pants.engine.internals.scheduler import ExecutionError
from pants.engine.rules import QueryRule
from pants.testutil.rule_runner import RuleRunner

from hub.repositories import HubRepository
from hub.server import Hub
from model_export import spec
from model_export.checkpoint_ask import CheckpointAsk
from model_export.checkpoint_lock import (
    LOCK_FILE,
    CheckpointLock,
    LockedCheckpoint,
    LockedFile,
)
from model_export.plugin import register
from model_export.plugin.checkpoint_folders import CheckpointFolder
from model_export.plugin.field_errors import TargetError
from model_export.plugin.hub_checkpoints import (
    HubCheckpointRequest,
    fetch_groups,
    locked_checkpoint,
)

REPO = "acme/tiny"
TOKEN = "hf_SecretOfTheUser0123456789"
# Incompressible, so that the store can't hide the token in it, and more than 8 MiB.
WEIGHTS = hashlib.shake_256(b"weights").digest((9 << 20) + 17)
FILES = {
    "model.safetensors": WEIGHTS,
    "config.json": b'{"architectures": ["BertModel"]}',
    "empty.txt": b"",
    "1_Pooling/config.json": b"{}",
}
# A goal that makes the folder and no more: an export would need torch.
BACKEND = """\
from pants.engine.addresses import Address
from pants.engine.fs import Workspace
from pants.engine.goal import Goal, GoalSubsystem
from pants.engine.rules import Get, collect_rules, goal_rule
from pants.option.option_types import StrOption

from model_export.plugin.checkpoint_folders import CheckpointFolder
from model_export.checkpoint_ask import CheckpointAsk
from model_export.plugin.hub_checkpoints import HubCheckpointRequest


class FetchSubsystem(GoalSubsystem):
    name = "fetch-checkpoint"
    help = "Fetches a checkpoint."
    model = StrOption(default="acme/tiny", help="A hub id.")


class Fetch(Goal):
    subsystem_cls = FetchSubsystem
    environment_behavior = Goal.EnvironmentBehavior.LOCAL_ONLY


@goal_rule
async def fetch(workspace: Workspace, options: FetchSubsystem) -> Fetch:
    ask = CheckpointAsk(options.model)
    request = HubCheckpointRequest(ask, Address("m", target_name="x"))
    folder = await Get(CheckpointFolder, HubCheckpointRequest, request)
    workspace.write_digest(folder.digest, path_prefix="dist/checkpoint")
    return Fetch(exit_code=0)


def rules():
    return collect_rules()
"""
SETTINGS = """\
[GLOBAL]
pants_version = "2.17.1"
pythonpath = ["{sources}", "%(buildroot)s/backends"]
backend_packages = ["model_export.plugin", "pants.backend.python", "fetching"]
local_store_dir = "%(buildroot)s/store"
named_caches_dir = "%(buildroot)s/named_caches"
pants_workdir = "%(buildroot)s/workdir"
pants_subprocessdir = "%(buildroot)s/pids"
local_execution_root_dir = "%(buildroot)s/sandboxes"
keep_sandboxes = "always"

[anonymous-telemetry]
enabled = false

[source]
root_patterns = ["/"]

[python]
enable_resolves = true
default_resolve = "hub"
pip_version = "latest"
interpreter_constraints = ["CPython==3.11.*"]

[python.resolves]
hub = "3rdparty/hub/lock.txt"

[python-bootstrap]
search_path = ["<PATH>", "<PYENV>"]
"""


def _locked(hub: Hub) -> CheckpointLock:
    repository = hub.repositories[REPO]
    commit = repository.refs["refs/heads/main"]
    files = tuple(
        LockedFile(path, file.content.size, file.content.sha256)
        for path, file in sorted(repository.commits[commit].items())
    )
    checkpoint = LockedCheckpoint(
        REPO, "main", commit, "apache-2.0", "auto", False, False, (), (), None, files
    )
    return CheckpointLock({checkpoint.key: checkpoint})


@dataclass(frozen=True)
class Repository:
    """A repository with Pants in it, all of whose files are below `root`."""

    root: Path
    hub: Hub

    def lock(self) -> None:
        (self.root / LOCK_FILE).write_text(_locked(self.hub).to_json(), encoding="utf-8")

    def pants(
        self,
        *arguments: str,
        environment: Mapping[str, str],
        prefix: Tuple[str, ...] = (),
    ) -> subprocess.CompletedProcess[str]:
        kept = ("HOME", "PATH", "PYENV_ROOT")
        return subprocess.run(
            [*prefix, sys.executable, "-m", "pants", *arguments],
            cwd=self.root,
            env={
                **{name: os.environ[name] for name in kept if name in os.environ},
                **{key: os.environ[key] for key in os.environ if key.startswith("PANTS_PEX_CLI_")},
                "PYTHONPATH": os.pathsep.join(sys.path),
                "NO_SCIE_WARNING": "1",
                **environment,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
        )

    def checkpoint(self) -> Dict[str, bytes]:
        folder = self.root / "dist/checkpoint"
        return {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in folder.rglob("*")
            if path.is_file()
        }


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Repository]:
    if "PANTS_PEX_CLI_VERSION" not in os.environ:
        pytest.skip("needs the pex CLI that ./pants builds")
    root = tmp_path_factory.mktemp("repository")
    (root / "backends/fetching").mkdir(parents=True)
    (root / "backends/fetching/register.py").write_text(BACKEND, encoding="utf-8")
    sources = Path(spec.__file__).resolve().parents[1]
    (root / "pants.toml").write_text(SETTINGS.format(sources=sources), encoding="utf-8")
    (root / "3rdparty/hub").mkdir(parents=True)
    shutil.copy("3rdparty/hub/lock.txt", root / "3rdparty/hub/lock.txt")
    model = HubRepository(REPO, dict(FILES), gated="auto")
    with Hub([model], tokens={TOKEN: [REPO]}) as hub:
        repository = Repository(root, hub)
        repository.lock()
        try:
            yield repository
        finally:
            _end_daemon(root)


def _end_daemon(root: Path) -> None:
    for file in root.glob("pids/*/pantsd/pid"):
        try:
            os.kill(int(file.read_text()), 15)
        except (ProcessLookupError, ValueError):
            continue


def _holding(root: Path, secret: bytes) -> List[str]:
    """The files below `root`, whatever they are, that have `secret` in their bytes."""
    found = []
    for folder, _, names in os.walk(root):
        for name in names:
            path = Path(folder, name)
            if path.is_symlink() or not path.is_file() or not path.stat().st_size:
                continue
            with (
                path.open("rb") as file,
                mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view,
            ):
                if view.find(secret) >= 0:
                    found.append(str(path.relative_to(root)))
    return found


def test_a_gated_checkpoint_arrives_and_its_token_is_nowhere(repository: Repository) -> None:
    """In the store, the sandboxes, the named caches, the daemon's files: all below one root."""
    login = {"HF_ENDPOINT": repository.hub.endpoint}
    refused = repository.pants("fetch-checkpoint", environment=login)
    assert refused.returncode == 1
    assert "m:x: `acme/tiny/" in refused.stdout and " is gated, " in refused.stdout

    login["HF_TOKEN"] = TOKEN
    done = repository.pants("-ldebug", "fetch-checkpoint", environment=login)
    assert done.returncode == 0, done.stdout[-3000:]
    assert repository.checkpoint() == FILES
    # What a waiting person is told.
    assert "Fetch model.safetensors (9.4 MB) of acme/tiny (m:x)" in done.stdout
    assert "9.4 MB from the hub and 0 bytes from this machine in " in done.stdout

    assert TOKEN not in done.stdout
    # The search finds what is there: the weights in the store and in a kept sandbox, the log.
    places = _holding(repository.root, WEIGHTS[:64])
    assert any(place.startswith("store/") for place in places)
    assert any(place.startswith("sandboxes/") for place in places)
    assert list(repository.root.glob("pids/*/pantsd/pid"))
    assert "fetch-checkpoint" in (repository.root / "workdir/pants.log").read_text()
    assert _holding(repository.root, TOKEN.encode()) == []
    assert _holding(repository.root, repository.hub.endpoint.encode()) == []
    assert not list((repository.root / "named_caches/model_export_hub").iterdir())

    # The same weights in another commit are known: only what changed is asked for.
    repository.hub.requests.clear()
    repository.hub.repositories[REPO].commit({**FILES, "config.json": b'{"architectures": []}'})
    repository.lock()
    again = repository.pants("fetch-checkpoint", environment=login)
    assert again.returncode == 0, again.stdout[-3000:]
    assert repository.checkpoint()["config.json"] == b'{"architectures": []}'
    assert not any("safetensors" in request.path for request in repository.hub.requests)
    assert any("config.json" in request.path for request in repository.hub.requests)


def test_a_build_without_a_network(repository: Repository) -> None:
    """After the fetch, in a network namespace with nothing in it, by a new Pants."""
    isolated = ("unshare", "--net")
    if shutil.which("unshare") is None or subprocess.run([*isolated, "true"]).returncode:
        pytest.skip("needs the right to make a network namespace (`unshare --net`)")
    environment = {"HF_ENDPOINT": repository.hub.endpoint, "HF_TOKEN": TOKEN}
    fetched = repository.pants("fetch-checkpoint", environment=environment)
    assert fetched.returncode == 0, fetched.stdout[-3000:]
    before = repository.checkpoint()
    shutil.rmtree(repository.root / "dist")
    built = repository.pants("--no-pantsd", "fetch-checkpoint", environment={}, prefix=isolated)
    assert built.returncode == 0, built.stdout[-3000:]
    assert repository.checkpoint() == before


@pytest.fixture(scope="module")
def rule_runner() -> RuleRunner:
    return RuleRunner(
        rules=[*register.rules(), QueryRule(CheckpointFolder, [HubCheckpointRequest])],
        target_types=register.target_types(),
    )


def _folder(rule_runner: RuleRunner, model: str) -> CheckpointFolder:
    request = HubCheckpointRequest(CheckpointAsk(model), Address("m", target_name="x"))
    return rule_runner.request(CheckpointFolder, [request])


def test_an_unlocked_id(rule_runner: RuleRunner) -> None:
    with pytest.raises(ExecutionError, match="m:x: `model` .*'acme/other' isn't locked"):
        _folder(rule_runner, "acme/other")


def test_a_lock_that_is_hostile(rule_runner: RuleRunner) -> None:
    with Hub([HubRepository(REPO, dict(FILES))]) as hub:
        document = json.loads(_locked(hub).to_json())
    document["checkpoints"][f"{REPO}@main"]["files"][0]["path"] = "../evil"
    rule_runner.write_files({LOCK_FILE: json.dumps(document)})
    with pytest.raises(ExecutionError, match=r"m:x: `model` can't be looked up: .*'\.\./evil'"):
        _folder(rule_runner, REPO)


def _refused(hub: Hub, ask: CheckpointAsk) -> str:
    with pytest.raises(TargetError) as caught:
        locked_checkpoint(_locked(hub), ask, Address("m", target_name="x"))
    return str(caught.value)


def test_a_target_that_asks_for_something_else_than_is_locked() -> None:
    hub = Hub([HubRepository(REPO, dict(FILES))])
    assert locked_checkpoint(_locked(hub), CheckpointAsk(REPO), Address("m")).size > len(WEIGHTS)
    assert "'acme/tiny' isn't locked" in _refused(hub, CheckpointAsk(REPO, "v1"))
    assert "for another `include`" in _refused(hub, CheckpointAsk(REPO, pickle=True))


def test_a_process_for_each_large_file_and_one_for_the_small() -> None:
    def files(*sizes: int) -> Tuple[LockedFile, ...]:
        return tuple(LockedFile(f"{number}", size, "0" * 64) for number, size in enumerate(sizes))

    a, b, c, d = files(9 << 20, 1, 8 << 20, 3 << 30)
    assert fetch_groups((a, b, c, d)) == [(a,), (d,), (b, c)]
    assert fetch_groups((a,)) == [(a,)]
