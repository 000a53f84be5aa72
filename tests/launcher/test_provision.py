"""A provision appears whole or not at all, whatever happens to the launchers that make it."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen

import pytest

Bash = Callable[..., "Popen[str]"]

# Two files, one before and one after a pause that ends when `go` exists; each build leaves a mark.
_SCRIPT = """
bootstrap_build_toy() {
  bootstrap_say building
  echo first > "$1/first"
  : > "$HOME/built.$$"
  while [[ ! -e $HOME/go ]]; do sleep 0.05; done
  echo "$2" > "$1/second"
  chmod +x "$1/second"
}
bootstrap_provide toy "$HOME/cache/toy" lock second && cat "$HOME/cache/toy/second"
"""


def _wait_for(home: Path, count: int = 1) -> None:
    deadline = time.monotonic() + 60
    while len(list(home.glob("built.*"))) < count:
        assert time.monotonic() < deadline, "no build began"
        time.sleep(0.05)


def test_a_second_run_builds_nothing_and_says_nothing(bash: Bash, home: Path) -> None:
    (home / "go").touch()
    assert bash(_SCRIPT).communicate(timeout=60) == ("lock\n", "pants: building\n")
    assert bash(_SCRIPT).communicate(timeout=60) == ("lock\n", "")
    assert len(list(home.glob("built.*"))) == 1


def test_two_at_once_build_once(bash: Bash, home: Path) -> None:
    if shutil.which("flock", path="/usr/bin:/bin") is None:
        pytest.skip("no flock on this machine: then two at once build twice, see the next test")
    first = bash(_SCRIPT)
    _wait_for(home)
    second = bash(_SCRIPT)
    assert second.stderr is not None
    assert "waiting for another ./pants" in second.stderr.readline()
    (home / "go").touch()
    assert first.communicate(timeout=60)[0] == second.communicate(timeout=60)[0] == "lock\n"
    assert len(list(home.glob("built.*"))) == 1


def test_two_at_once_without_flock_leave_one_whole_folder(
    bash: Bash, home: Path, tmp_path: Path
) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("cat", "chmod", "dirname", "mkdir", "mktemp", "mv", "rm", "sleep"):
        found = shutil.which(name, path="/usr/bin:/bin")
        assert found is not None
        (tools / name).symlink_to(found)
    runs = [bash(_SCRIPT, path=str(tools)) for _ in range(2)]
    _wait_for(home, count=2)
    (home / "go").touch()
    assert [run.communicate(timeout=60)[0] for run in runs] == ["lock\n", "lock\n"]
    assert sorted(each.name for each in (home / "cache").iterdir()) == ["toy"]
    assert sorted(each.name for each in (home / "cache/toy").iterdir()) == ["first", "second"]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_an_interrupted_build_heals(bash: Bash, home: Path, how: signal.Signals) -> None:
    interrupted = bash(_SCRIPT)
    _wait_for(home)
    os.killpg(interrupted.pid, how)
    assert interrupted.wait(timeout=60) != 0
    assert not (home / "cache/toy").exists()
    (home / "go").touch()
    out, err = bash(_SCRIPT).communicate(timeout=60)
    assert out == "lock\n"
    assert err.endswith("pants: building\n")  # It may have waited for the cleanup of the first.
    left = {each.name for each in (home / "cache").iterdir()}
    assert left <= {"toy", "lock"}


def test_a_folder_that_lost_its_probe_is_made_again(bash: Bash, home: Path) -> None:
    (home / "go").touch()
    bash(_SCRIPT).communicate(timeout=60)
    (home / "cache/toy/second").unlink()
    (home / "cache/toy/second").symlink_to("/nonexistent/python3.9")
    assert bash(_SCRIPT).communicate(timeout=60) == ("lock\n", "pants: building\n")


def test_a_failed_build_leaves_nothing(bash: Bash, home: Path) -> None:
    script = _SCRIPT.replace('echo "$2"', "return 1")
    (home / "go").touch()
    process = bash(script)
    assert process.communicate(timeout=60)[0] == ""
    assert process.returncode == 1
    assert [each.name for each in (home / "cache").iterdir()] in ([], ["lock"])
