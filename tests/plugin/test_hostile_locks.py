"""A checkpoint lock of a stranger ends a build with one line, before anything is written."""

from __future__ import annotations

from pathlib import Path
from typing import FrozenSet

import pytest
from pants.engine.addresses import Address
from pants.engine.internals.scheduler import ExecutionError
from pants.testutil.rule_runner import RuleRunner

from hub.hostile_locks import LOCK_TEXT, hostile_locks
from model_export.checkpoint_lock import LOCK_FILE
from model_export.plugin.artifacts import Artifact, ArtifactRequest

LOCKS = hostile_locks()
BUILD = 'export_model(name="x", model="Qwen/Qwen3-0.6B", config={"export_format": "onnx"})\n'


def _outside(build_root: Path) -> FrozenSet[Path]:
    """What lies beside the build root, and in it, but for what Pants keeps for itself."""
    kept = (build_root / ".pants.d", build_root / ".pids")
    beside = build_root.parent.iterdir()
    inside = (path for path in build_root.rglob("*") if not any(k in path.parents for k in kept))
    return frozenset((*beside, *inside))


def _said(rule_runner: RuleRunner) -> str:
    with pytest.raises(ExecutionError) as caught:
        rule_runner.request(Artifact, [ArtifactRequest(Address("hostile", target_name="x"))])
    # Below a first line of its own, the engine says what the exception says.
    lines = [line for line in str(caught.value).splitlines() if "TargetError: " in line]
    assert len(lines) == 1
    return lines[0].partition("TargetError: ")[2]


def test_each_is_one_line_and_nothing_is_written(rule_runner: RuleRunner) -> None:
    rule_runner.write_files({"hostile/BUILD": BUILD, LOCK_FILE: LOCK_TEXT})
    before = _outside(Path(rule_runner.build_root))
    try:
        for name, content in LOCKS.items():
            rule_runner.write_files({LOCK_FILE: content})
            said = _said(rule_runner)
            assert said.startswith("hostile:x: `model` can't be looked up: "), name
            assert said.isprintable() and said.isascii() and len(said) < 600, name
            assert _outside(Path(rule_runner.build_root)) == before, name
    finally:
        Path(rule_runner.build_root, LOCK_FILE).unlink()
