"""What `package` leaves in `dist/`: artifacts whole, once, and again when they were touched."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, List, Tuple

import pytest
from pants.core.goals import package as core_package
from pants.core.goals.package import BuiltPackage, OutputPathField, Package, PackageFieldSet
from pants.core.target_types import ArchiveTarget, FileTarget
from pants.core.target_types import rules as core_target_rules
from pants.core.util_rules import archive, distdir, source_files, system_binaries
from pants.engine.fs import AddPrefix, Digest, PathGlobs, RemovePrefix
from pants.engine.internals.scheduler import ExecutionError
from pants.engine.rules import Get, collect_rules, rule
from pants.engine.target import COMMON_TARGET_FIELDS, StringField, Target
from pants.engine.unions import UnionRule
from pants.testutil.rule_runner import RuleRunner

from model_export.plugin import register
from model_export.plugin.dist import STATE_FOLDER, ModelArtifact
from model_export.plugin.fields import ArtifactPathField
from model_export.plugin.goals import package_dist

# Before a test puts ours into its place.
UPSTREAM = {name: getattr(core_package.package_asset.rule, name) for name in package_dist.REPLACED}


class VersionField(StringField):
    alias = "version"
    required = True
    value: str
    help = "The folder beside the BUILD file that is packaged."


class FolderTarget(Target):
    """Packages a folder of the repository the way an export does, without a model."""

    alias = "folder"
    core_fields = (*COMMON_TARGET_FIELDS, VersionField, ArtifactPathField)
    help = "A folder of the repository."


@dataclass(frozen=True)
class FolderFieldSet(PackageFieldSet):
    required_fields = (VersionField,)

    version: VersionField
    output_path: OutputPathField


@rule
async def package_folder(field_set: FolderFieldSet) -> BuiltPackage:
    path = field_set.output_path.value_or_default(file_ending=None)
    source = f"{field_set.address.spec_path}/{field_set.version.value}"
    captured = await Get(Digest, PathGlobs([f"{source}/**"]))
    bare = await Get(Digest, RemovePrefix(captured, source))
    digest = await Get(Digest, AddPrefix(bare, path))
    return BuiltPackage(digest, (ModelArtifact(path, ("  2 files",), digest),))


def _rule_runner() -> RuleRunner:
    package_dist.install_package_goal()
    runner = RuleRunner(
        rules=[
            *archive.rules(),
            *collect_rules(globals()),
            *core_package.rules(),
            *core_target_rules(),
            *distdir.rules(),
            *register.rules(),
            *source_files.rules(),
            *system_binaries.rules(),
            UnionRule(PackageFieldSet, FolderFieldSet),
        ],
        target_types=[FolderTarget, ArchiveTarget, FileTarget],
    )
    _write_versions(runner)
    return runner


def _write_versions(rule_runner: RuleRunner) -> None:
    for version in ("one", "two"):
        rule_runner.write_files({f"m/{version}/a.bin": version, f"m/{version}/sub/b.bin": version})


@pytest.fixture
def rule_runner() -> RuleRunner:
    return _rule_runner()


def _package(rule_runner: RuleRunner, *specs: str) -> None:
    result = rule_runner.run_goal_rule(
        Package, args=specs, env_inherit={"PATH", "HOME", "PYENV_ROOT"}
    )
    assert result.exit_code == 0


def _dist(rule_runner: RuleRunner, *parts: str) -> Path:
    return Path(rule_runner.build_root, "dist", *parts)


def _state(folder: Path) -> List[Tuple[str, int, int]]:
    return [
        (str(path), path.stat().st_ino, path.stat().st_ctime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    ]


def _names(folder: Path) -> List[str]:
    return [p.relative_to(folder).as_posix() for p in sorted(folder.rglob("*")) if p.is_file()]


def test_unchanged_writes_nothing_and_changed_writes_anew(rule_runner: RuleRunner) -> None:
    rule_runner.write_files({"m/BUILD": 'folder(name="x", version="one")'})
    _package(rule_runner, "m:x")
    folder = _dist(rule_runner, "m", "x")
    assert _names(folder) == ["a.bin", "sub/b.bin"]
    before = _state(folder)
    _package(rule_runner, "m:x")
    assert _state(folder) == before

    rule_runner.write_files({"m/BUILD": 'folder(name="x", version="two")'})
    _package(rule_runner, "m:x")
    assert (folder / "a.bin").read_text() == "two"
    assert not _dist(rule_runner, STATE_FOLDER, "staging").exists()


def _edit(folder: Path) -> None:
    path = folder / "a.bin"
    times = path.stat()
    path.write_text("ONE")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def _delete(folder: Path) -> None:
    (folder / "sub" / "b.bin").unlink()


def _delete_all(folder: Path) -> None:
    shutil.rmtree(folder)


def _add(folder: Path) -> None:
    (folder / "extra").write_text("x")


def _make_link(folder: Path) -> None:
    target = folder.parent / "elsewhere"
    folder.rename(target)
    folder.symlink_to(target)


def _break_stamp(folder: Path) -> None:
    stamp = folder.parent.parent / STATE_FOLDER / "stamps" / "m" / "x.json"
    stamp.write_text("{")
    (folder / "a.bin").write_text("ONE")


@pytest.mark.parametrize(
    "touch", [_edit, _delete, _delete_all, _add, _make_link, _break_stamp], ids=lambda f: f.__name__
)
def test_a_touched_artifact_is_restored(rule_runner: RuleRunner, touch: Any) -> None:
    rule_runner.write_files({"m/BUILD": 'folder(name="x", version="one")'})
    _package(rule_runner, "m:x")
    folder = _dist(rule_runner, "m", "x")
    touch(folder)
    _package(rule_runner, "m:x")
    assert not folder.is_symlink()
    assert _names(folder) == ["a.bin", "sub/b.bin"]
    assert (folder / "a.bin").read_text() == "one"
    assert (folder / "sub" / "b.bin").read_text() == "one"


def test_other_packages_are_written_as_always(rule_runner: RuleRunner) -> None:
    rule_runner.write_files(
        {
            "m/BUILD": (
                'folder(name="x", version="one")\n'
                'archive(name="all", packages=[":x"], format="tar", output_path="m/all.tar")\n'
            )
        }
    )
    _package(rule_runner, "m:x", "m:all")
    assert _names(_dist(rule_runner, "m", "x")) == ["a.bin", "sub/b.bin"]
    unpacked = _dist(rule_runner, "unpacked")
    shutil.unpack_archive(str(_dist(rule_runner, "m", "all.tar")), str(unpacked))
    assert _names(unpacked) == ["m/x/a.bin", "m/x/sub/b.bin"]
    folder_state = _state(_dist(rule_runner, "m", "x"))
    archive_state = _dist(rule_runner, "m", "all.tar").stat().st_ino
    keep = _dist(rule_runner, "m", "all.tar").open("rb")  # Its inode can't be given out again.
    _package(rule_runner, "m:x", "m:all")
    keep.close()
    assert _state(_dist(rule_runner, "m", "x")) == folder_state
    assert _dist(rule_runner, "m", "all.tar").stat().st_ino != archive_state


@pytest.mark.parametrize("other", ["out", "out/x/inner", "out/x"])
def test_packages_that_overwrite_each_other(rule_runner: RuleRunner, other: str) -> None:
    rule_runner.write_files(
        {
            "m/BUILD": (
                'folder(name="x", version="one", output_path="out/x")\n'
                f'folder(name="y", version="two", output_path="{other}")\n'
            )
        }
    )
    with pytest.raises(ExecutionError, match="would overwrite each other in the dist folder"):
        rule_runner.run_goal_rule(Package, args=["m:x", "m:y"])
    assert not _dist(rule_runner, "out").exists()


_BIG_BYTES = 300_000_000


def _write_big(rule_runner: RuleRunner) -> None:
    rule_runner.write_files({"m/BUILD": 'folder(name="x", version="big")', "m/big/sub/b.bin": "b"})
    with Path(rule_runner.build_root, "m/big/a.bin").open("wb") as file:
        file.truncate(_BIG_BYTES)  # Sparse: only what `package` writes takes time.


def _package_small_then_big(connection: Connection) -> None:
    rule_runner = _rule_runner()
    rule_runner.write_files({"m/BUILD": 'folder(name="x", version="one")'})
    _package(rule_runner, "m:x")
    _write_big(rule_runner)
    connection.send(rule_runner.build_root)
    _package(rule_runner, "m:x")
    connection.send("written")


def test_a_kill_leaves_the_old_artifact_and_the_next_run_is_right(rule_runner: RuleRunner) -> None:
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_package_small_then_big, args=(sender,))
    child.start()
    dist = Path(receiver.recv(), "dist")
    new = dist / STATE_FOLDER / "staging" / "new" / "m" / "x"
    deadline = time.monotonic() + 120
    while not (new / "a.bin").exists() and time.monotonic() < deadline:
        time.sleep(0.001)
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    assert not receiver.poll(), "the write ended before it was killed: make the file larger"
    assert (dist / STATE_FOLDER / "staging").exists()
    assert _names(dist / "m" / "x") == ["a.bin", "sub/b.bin"]
    assert (dist / "m" / "x" / "a.bin").read_text() == "one"

    shutil.move(str(dist), str(_dist(rule_runner)))
    _write_big(rule_runner)
    _package(rule_runner, "m:x")
    assert _dist(rule_runner, "m", "x", "a.bin").stat().st_size == _BIG_BYTES
    assert _dist(rule_runner, "m", "x", "sub", "b.bin").read_text() == "b"
    assert not _dist(rule_runner, STATE_FOLDER, "staging").exists()


def test_upstream_still_rewrites() -> None:
    """Fails once Pants writes only what changed: `goals/package_dist.py` can go then."""
    for field, value in UPSTREAM.items():
        object.__setattr__(core_package.package_asset.rule, field, value)
    try:
        rule_runner = _rule_runner_with_upstreams_goal()
        rule_runner.write_files({"m/BUILD": 'folder(name="x", version="one")'})
        _package(rule_runner, "m:x")
        before = _state(_dist(rule_runner, "m", "x"))
        _package(rule_runner, "m:x")
        assert _state(_dist(rule_runner, "m", "x")) != before
    finally:
        package_dist.install_package_goal()


def _rule_runner_with_upstreams_goal() -> RuleRunner:
    runner = RuleRunner(
        rules=[
            *collect_rules(globals()),
            *core_package.rules(),
            *distdir.rules(),
            UnionRule(PackageFieldSet, FolderFieldSet),
        ],
        target_types=[FolderTarget],
    )
    _write_versions(runner)
    return runner
