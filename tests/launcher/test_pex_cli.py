"""The pex command line has the same bytes on every machine: caches are keyed by them."""

from __future__ import annotations

import hashlib
import os
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen

import pytest

Bash = Callable[..., "Popen[str]"]
_LAUNCHER = "PANTS_PEX_CLI_URL_TEMPLATE"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of pex, from the files that the launcher's own pex command line holds."""
    if _LAUNCHER not in os.environ:
        pytest.skip("only ./pants builds a pex command line")
    built = os.environ[_LAUNCHER].removeprefix("file://")
    with zipfile.ZipFile(built) as pex:
        members = [
            name for name in pex.namelist() if name.startswith(".deps/") and not name.endswith("/")
        ]
        file = tmp_path_factory.mktemp("wheel") / members[0].split("/")[1]
        with zipfile.ZipFile(file, "w") as target:
            for name in members:
                target.writestr(name.split("/", 2)[2], pex.read(name))
    return file


def _pack(bash: Bash, wheel: Path, folder: Path, script: str, env: dict[str, str]) -> str:
    (folder / "wheels").mkdir(parents=True)
    (folder / "wheels" / wheel.name).write_bytes(wheel.read_bytes())
    version = wheel.name.split("-")[1]
    process = bash(f"{script}\nbootstrap_pack_pex '{folder}' {sys.executable} {version}", env=env)
    _, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    digest = hashlib.sha256((folder / "pex").read_bytes()).hexdigest()
    size = (folder / "pex").stat().st_size
    assert (folder / "identity").read_text() == f"v{version} {digest} {size}\n"
    return digest


def test_a_path_that_pants_cant_open_gets_a_plain_link(bash: Bash, tmp_path: Path) -> None:
    plain = tmp_path / "pex_cli-1"
    assert bash(f"bootstrap_file_url '{plain}' pex").communicate(timeout=60) == (
        f"file://{plain}/pex\n",
        "",
    )
    folder = tmp_path / "caché of mine" / f"pex_cli-{os.getpid()}"
    folder.mkdir(parents=True)
    (folder / "pex").write_text("pex")
    out, err = bash(f"bootstrap_file_url '{folder}' pex").communicate(timeout=60)
    link = Path(out.strip().removeprefix("file://"))
    try:
        assert err == ""
        assert " " not in str(link)
        assert link.read_text() == "pex"
    finally:
        link.parent.unlink()


def test_bytes_depend_on_the_wheel_alone(bash: Bash, wheel: Path, tmp_path: Path) -> None:
    here = _pack(bash, wheel, tmp_path / "here", "umask 022", {"TZ": "UTC", "PYTHONHASHSEED": "0"})
    there = _pack(
        bash,
        wheel,
        tmp_path / "another place",
        "umask 077",
        {
            "HOME": "/nonexistent",
            "XDG_CACHE_HOME": str(tmp_path / "cache"),
            "TZ": "Asia/Tokyo",
            "LC_ALL": "C",
            "PYTHONHASHSEED": "7",
            "PEX_VERBOSE": "0",
            "PEX_SCRIPT": "pex-tools",
            "SOURCE_DATE_EPOCH": "1700000000",
        },
    )
    assert here == there
