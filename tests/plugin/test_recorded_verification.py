"""An artifact is its export, byte for byte, but for what the manifest says of the verification."""

from __future__ import annotations

import pytest
from pants.engine.fs import (
    CreateDigest,
    Digest,
    DigestContents,
    DigestEntries,
    FileContent,
)
from pants.engine.internals.scheduler import ExecutionError
from pants.testutil.rule_runner import RuleRunner
from pants.util.frozendict import FrozenDict

from model_export.manifest import (
    CheckpointRecord,
    FileRecord,
    Manifest,
    VerificationRecord,
)
from model_export.plugin.artifacts import Artifact, VerifiedExport

EXPORTED = Manifest(
    export_format="onnx",
    checkpoint=CheckpointRecord("random", "random X", (FileRecord("a", 1, "0" * 64),)),
    spec={"dtype": "float32"},
    lock={"resolve": "onnx", "sha256": "1" * 64},
    engine={"transformers": "5.24.0"},
    components=(),
    files=(FileRecord("model.onnx", 3, "2" * 64),),
)


def _export(rule_runner: RuleRunner, manifest: str) -> Digest:
    return rule_runner.request(
        Digest,
        [
            CreateDigest(
                [
                    FileContent("manifest.json", manifest.encode()),
                    FileContent("model.onnx", b"abc", is_executable=True),
                    FileContent("sub/.hidden", b"x" * 600_000),
                ]
            )
        ],
    )


def _record(rule_runner: RuleRunner, export: Digest, status: str, **bounds: float) -> Digest:
    request = VerifiedExport(export, status, FrozenDict(bounds))
    return rule_runner.request(Artifact, [request]).digest


def test_only_the_record_of_the_verification_changes(rule_runner: RuleRunner) -> None:
    assert EXPORTED.verification.status == "pending"
    export = _export(rule_runner, EXPORTED.to_json())
    passed = _record(rule_runner, export, "passed", max_abs=1e-3, cosine=0.999)
    contents = {file.path: file for file in rule_runner.request(DigestContents, [passed])}
    manifest = Manifest.from_json(contents["manifest.json"].content.decode())
    expected = VerificationRecord("passed", {"max_abs": 1e-3, "cosine": 0.999})
    assert manifest.verification == expected
    assert manifest.files == EXPORTED.files and manifest.checkpoint == EXPORTED.checkpoint
    assert manifest.spec == EXPORTED.spec and manifest.lock == EXPORTED.lock
    before, after = (
        set(rule_runner.request(DigestEntries, [digest])) for digest in (export, passed)
    )
    assert {entry.path for entry in before ^ after} == {"manifest.json"}
    assert contents["model.onnx"].is_executable


def test_equal_verdicts_make_equal_artifacts(rule_runner: RuleRunner) -> None:
    export = _export(rule_runner, EXPORTED.to_json())
    first = _record(rule_runner, export, "passed", max_abs=1e-3, cosine=0.999)
    second = _record(rule_runner, export, "passed", cosine=0.999, max_abs=1e-3)
    skipped = _record(rule_runner, export, "skipped")
    assert first == second != skipped


def test_a_manifest_that_the_plugin_does_not_know(rule_runner: RuleRunner) -> None:
    export = _export(rule_runner, '{"schema_version": 2}')
    with pytest.raises(
        ExecutionError, match="manifest.json has schema version 2, and this reads 1"
    ):
        _record(rule_runner, export, "passed")
