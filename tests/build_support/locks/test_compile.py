"""Runs uv on wheels written here; nothing is fetched."""

import zipfile
from pathlib import Path

import pytest

from locks.check import problems
from locks.compile import CompileError, compile_locks
from locks.resolves import LockedResolve

_TOOLS = LockedResolve("tools")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with the resolve `tools`, and an index with three releases of two packages."""
    index = tmp_path / "index"
    index.mkdir()
    _wheel(index, "graph", "1.0")
    _wheel(index, "graph", "2.0", requires="opset>=1")
    _wheel(index, "opset", "1.0")
    monkeypatch.setenv("UV_FIND_LINKS", str(index))
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("UV_NO_CONFIG", "1")
    folder = tmp_path / "repository"
    _TOOLS.requirements(folder).parent.mkdir(parents=True)
    return folder


def _wheel(index: Path, name: str, version: str, requires: str = "") -> None:
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    if requires:
        metadata += f"Requires-Dist: {requires}\n"
    with zipfile.ZipFile(index / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        info = f"{name}-{version}.dist-info"
        wheel.writestr(f"{info}/METADATA", metadata)
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")


def _pins(root: Path) -> list[str]:
    lines = _TOOLS.lock(root).read_text().splitlines()
    return [line.split()[0] for line in lines if "==" in line]


def test_a_lock_pins_dependencies_with_hashes(root: Path) -> None:
    _TOOLS.requirements(root).write_text("graph\n")
    compile_locks(root, [_TOOLS], upgrade=False)
    assert _pins(root) == ["graph==2.0", "opset==1.0"]
    assert problems(root, [_TOOLS]) == ()
    assert str(root.parent) not in _TOOLS.lock(root).read_text()


def test_locked_versions_stay_until_an_upgrade(root: Path) -> None:
    _TOOLS.requirements(root).write_text("graph<2\n")
    compile_locks(root, [_TOOLS], upgrade=False)
    _TOOLS.requirements(root).write_text("graph\nopset\n")
    compile_locks(root, [_TOOLS], upgrade=False)
    assert _pins(root) == ["graph==1.0", "opset==1.0"]
    compile_locks(root, [_TOOLS], upgrade=True)
    assert _pins(root) == ["graph==2.0", "opset==1.0"]


def test_wheels_that_carry_models_are_locked_alone(root: Path) -> None:
    resolve = LockedResolve("tools", dependencies=False)
    resolve.requirements(root).write_text("graph==2.0\n")
    compile_locks(root, [resolve], upgrade=False)
    assert _pins(root) == ["graph==2.0"]


def test_what_uv_says_reaches_the_user(root: Path) -> None:
    _TOOLS.requirements(root).write_text("graph>=3\n")
    with pytest.raises(CompileError, match=r"uv can't compile tools:(.|\n)*graph>=3"):
        compile_locks(root, [_TOOLS], upgrade=False)
    assert not _TOOLS.lock(root).exists()
