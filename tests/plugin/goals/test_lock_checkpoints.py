"""`./pants lock-checkpoints`: what it writes, when it asks the hub, and where a token goes."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Iterator, Mapping

import pytest
from pants.core.goals import package as core_package
from pants.core.goals import run as core_run
from pants.core.goals import test as core_test
from pants.core.util_rules import distdir
from pants.engine.rules import QueryRule
from pants.testutil.rule_runner import PYTHON_BOOTSTRAP_ENV, GoalRuleResult, RuleRunner

from hub.repositories import HubRepository
from hub.server import Hub
from model_export.checkpoint_lock import LOCK_FILE, CheckpointLock
from model_export.plugin import register
from model_export.plugin.goals.lock_checkpoints import LockCheckpoints
from model_export.plugin.hub_locks import HubLock, HubLockRequest

HUB_LOCK = Path("3rdparty/hub/lock.txt")
TOKEN = "hf_secretOfTheTest"
FILES = {
    "config.json": b'{"model_type": "bert"}',
    "model.safetensors": bytes(1000),
    "pytorch_model.bin": b"pickle",
    "vocab.txt": b"a\n",
}
OPTIONS = (
    "--python-enable-resolves",
    "--python-resolves={'hub': '3rdparty/hub/lock.txt'}",
    "--python-default-resolve=hub",
    "--python-pip-version=latest",
    "--python-interpreter-constraints=['CPython==3.11.*']",
    "--python-bootstrap-search-path=['<PATH>', '<PYENV>']",
)
TINY, OTHER = "acme/tiny", "acme/other"


def _export(name: str, more: str = "", model: str = TINY) -> str:
    config = '{"export_format": "onnx"}'
    return f'export_model(name="{name}", model="{model}", config={config}, {more})\n'


@pytest.fixture(scope="module")
def runner() -> RuleRunner:
    if "PANTS_PEX_CLI_VERSION" not in os.environ:
        pytest.skip("needs the pex CLI that ./pants builds")
    made = RuleRunner(
        rules=[
            *register.rules(),
            *core_package.rules(),
            *core_run.rules(),
            *core_test.rules(),
            *distdir.rules(),
            QueryRule(HubLock, [HubLockRequest]),
        ],
        target_types=register.target_types(),
    )
    made.write_files({"3rdparty/hub/lock.txt": HUB_LOCK.read_text(encoding="utf-8")})
    return made


@pytest.fixture
def hub() -> Iterator[Hub]:
    repositories = [
        HubRepository(TINY, FILES),
        HubRepository(OTHER, FILES, card={"license": "mit"}),
        HubRepository("acme/gated", FILES, gated="manual"),
    ]
    with Hub(repositories, tokens={TOKEN: ["acme/gated"]}) as made:
        yield made


@pytest.fixture(autouse=True)
def _clean(runner: RuleRunner) -> None:
    for path in (Path(runner.build_root, LOCK_FILE), Path(runner.build_root, "m/BUILD")):
        path.unlink(missing_ok=True)


def _lock(runner: RuleRunner, hub: Hub, *arguments: str, **variables: str) -> GoalRuleResult:
    cli = {key: value for key, value in os.environ.items() if key.startswith("PANTS_PEX_CLI_")}
    home = {"HOME": runner.build_root, "HF_ENDPOINT": hub.endpoint}
    return runner.run_goal_rule(
        LockCheckpoints,
        args=arguments,
        global_args=OPTIONS,
        env={**cli, **home, **variables},
        env_inherit=PYTHON_BOOTSTRAP_ENV - {"HOME"},
    )


def _read(runner: RuleRunner) -> CheckpointLock:
    return CheckpointLock.from_json(_text(runner))


def _text(runner: RuleRunner) -> str:
    return Path(runner.build_root, LOCK_FILE).read_text(encoding="utf-8")


def _commits(runner: RuleRunner) -> Mapping[str, str]:
    return {key: locked.commit for key, locked in _read(runner).checkpoints.items()}


def test_locks_then_does_nothing_until_told(runner: RuleRunner, hub: Hub) -> None:
    runner.write_files({"m/BUILD": _export("x") + _export("y") + _export("z", "", OTHER)})
    first = _lock(runner, hub, "m:x")
    assert first.exit_code == 0, first.stderr
    assert first.stdout.splitlines()[-1] == f"Wrote {LOCK_FILE}"
    tiny = hub.repositories[TINY]
    old = tiny.refs["refs/heads/main"]
    assert first.stdout.splitlines()[1].split() == (
        f"{TINY}@main {old[:12]} 3 1.0 kB apache-2.0 open".split()
    )
    assert [file.path for file in _read(runner).checkpoints[f"{TINY}@main"].files] == [
        "config.json",
        "model.safetensors",
        "vocab.txt",
    ]

    # Nothing is asked where all is locked, and nothing is written.
    text, asked = _text(runner), len(hub.requests)
    new = tiny.commit({**FILES, "vocab.txt": b"b\n"})
    again = _lock(runner, hub, "m:y")
    assert (again.exit_code, len(hub.requests)) == (0, asked)
    assert again.stdout == f"{LOCK_FILE} is up to date: 1 checkpoint, 1.0 kB\n"
    assert _text(runner) == text

    # Others stay as they are when one is added, or upgraded.
    assert _lock(runner, hub, "::").exit_code == 0
    assert _commits(runner)[f"{TINY}@main"] == old
    asked = len(hub.requests)
    upgraded = _lock(runner, hub, f"--upgrade={TINY}", "::")
    assert len(hub.requests) > asked
    assert _commits(runner)[f"{TINY}@main"] == new
    assert f"{old[:12]} -> {new[:12]}" in upgraded.stdout
    assert "  ~ vocab.txt (2 B)" in upgraded.stdout.splitlines()
    # Asked again in this process, and answered anew.
    newest = tiny.commit({**FILES, "vocab.txt": b"c\n"})
    _lock(runner, hub, f"--upgrade={TINY}", "::")
    assert _commits(runner)[f"{TINY}@main"] == newest


def test_checks_without_a_hub(runner: RuleRunner, hub: Hub) -> None:
    runner.write_files({"m/BUILD": _export("x") + _export("z", "", OTHER)})
    missing = _lock(runner, hub, "--check", "::")
    assert missing.exit_code == 1 and not hub.requests
    assert missing.stderr.splitlines() == [
        f"m:z: {OTHER}@main isn't locked",
        f"m:x: {TINY}@main isn't locked",
        "Run ./pants lock-checkpoints with the same targets.",
    ]
    _lock(runner, hub, "::")
    asked = len(hub.requests)
    right = _lock(runner, hub, "--check", "::")
    assert right.exit_code == 0 and "2 checkpoints" in right.stdout

    text = _text(runner)
    runner.write_files({"m/BUILD": _export("x", 'include=["*.bin"], allow_pickle=True')})
    wrong = _lock(runner, hub, "--check", "::")
    assert wrong.exit_code == 1
    assert wrong.stderr.splitlines()[:2] == [
        f"m:x: {TINY}@main is locked for other fields",
        f"{LOCK_FILE}: no target asks for {OTHER}@main",
    ]
    runner.write_files({"m/BUILD": _export("x"), LOCK_FILE: text.replace("\n ", "\n  ")})
    assert "isn't as lock-checkpoints writes it" in _lock(runner, hub, "--check", "m:x").stderr
    assert len(hub.requests) == asked


def test_another_choice_keeps_the_commit(runner: RuleRunner, hub: Hub) -> None:
    runner.write_files({"m/BUILD": _export("x")})
    _lock(runner, hub, "::")
    before = _read(runner).checkpoints[f"{TINY}@main"]
    hub.repositories[TINY].commit({**FILES, "vocab.txt": b"moved\n"})
    runner.write_files({"m/BUILD": _export("x", 'include=["*.bin"], allow_pickle=True')})
    assert "  + pytorch_model.bin (6 B)" in _lock(runner, hub, "::").stdout.splitlines()
    after = _read(runner).checkpoints[f"{TINY}@main"]
    assert replace(after, pickle=False, include=(), files=before.files) == before
    assert len(after.files) == 4


def test_drops_what_no_target_asks_for(runner: RuleRunner, hub: Hub) -> None:
    runner.write_files({"m/BUILD": _export("x", 'tags=["a"]') + _export("z", "", OTHER)})
    _lock(runner, hub, "::")
    runner.write_files({"m/BUILD": _export("x", 'tags=["a"]')})
    assert "2 checkpoints" in _lock(runner, hub, "m::").stdout
    assert "removed" in _lock(runner, hub, "::").stdout
    assert list(_read(runner).checkpoints) == [f"{TINY}@main"]


def test_a_token_opens_a_gated_model_and_leaves_no_trace(runner: RuleRunner, hub: Hub) -> None:
    runner.write_files({"m/BUILD": _export("x", "", "acme/gated")})
    refused = _lock(runner, hub, "m:x")
    assert refused.exit_code == 1
    assert refused.stderr.splitlines()[0] == (
        "m:x: acme/gated@main: 'config.json': it is gated, and you have no access. Ask for access "
        "on the model's page, then log in (`hf auth login`) or set HF_TOKEN."
    )
    assert not Path(runner.build_root, LOCK_FILE).exists()
    opened = _lock(runner, hub, "m:x", HF_TOKEN=TOKEN)
    assert opened.exit_code == 0, opened.stderr
    assert "gated (manual)" in opened.stdout
    assert TOKEN not in opened.stdout + opened.stderr + _text(runner)
    assert {request.token for request in hub.requests} == {None, TOKEN}


def test_refuses_what_it_cannot_do(runner: RuleRunner, hub: Hub) -> None:
    runner.write_files({"m/BUILD": _export("x") + _export("y", "allow_pickle=True")})
    contradiction = _lock(runner, hub, "::")
    assert contradiction.exit_code == 1
    assert contradiction.stderr.startswith(f"m:x and m:y: both ask for {TINY}@main")
    assert "No targets are given" in _lock(runner, hub).stderr
    assert "Did you mean 'acme/tiny'" in _lock(runner, hub, "--upgrade=acme/tony", "m:x").stderr
    runner.write_files({LOCK_FILE: "{"})
    damaged = _lock(runner, hub, "m:x")
    assert damaged.exit_code == 1 and damaged.stderr.startswith(f"{LOCK_FILE}: it is no JSON")
    assert _text(runner) == "{"
    assert not hub.requests
