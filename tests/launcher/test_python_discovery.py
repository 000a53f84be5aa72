"""Which interpreter the launcher takes; the one that runs this test stands for the wanted one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen

import pytest

_VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"
_REAL = f'exec "{sys.executable}" "$@"'

Bash = Callable[..., "Popen[str]"]
Executable = Callable[[str, str], Path]


def _found(process: Popen[str]) -> str:
    out, err = process.communicate(timeout=60)
    assert err == ""
    return out.strip()


def test_a_shim_that_fails_is_passed_over(bash: Bash, executable: Executable) -> None:
    executable(f"shims/python{_VERSION}", "echo 'pyenv: command not found' >&2; exit 127")
    good = executable(f"good/python{_VERSION}", _REAL)
    path = f"{good.parent.parent}/shims:{good.parent}:/usr/bin:/bin"
    assert _found(bash(f"bootstrap_find_python {_VERSION}", path=path)) == str(good)


@pytest.mark.parametrize("name", ["python3", "python"])
def test_a_python_of_another_name_counts_if_it_is_that_version(
    bash: Bash, executable: Executable, name: str
) -> None:
    good = executable(f"good/{name}", _REAL)
    assert _found(bash(f"bootstrap_find_python {_VERSION}", path=f"{good.parent}")) == str(good)
    assert _found(bash("bootstrap_find_python 3.6", path=f"{good.parent}")) == ""


def test_a_python_without_venv_is_passed_over(bash: Bash, executable: Executable) -> None:
    bare = executable(f"bare/python{_VERSION}", f"""case "$*" in *venv*) exit 1;; esac; {_REAL}""")
    good = executable("good/python3", _REAL)
    path = f"{bare.parent}:{good.parent}"
    assert _found(bash(f"bootstrap_find_python {_VERSION}", path=path)) == str(good)


@pytest.mark.parametrize("root", ["home/.pyenv", "elsewhere/pyenv"])
def test_versions_of_pyenv_are_found(
    bash: Bash, executable: Executable, tmp_path: Path, root: str
) -> None:
    executable(f"{root}/versions/{_VERSION}.1/bin/python{_VERSION}", "exit 1")
    good = executable(f"{root}/versions/{_VERSION}.7/bin/python{_VERSION}", _REAL)
    env = {} if root.startswith("home") else {"PYENV_ROOT": str(tmp_path / root)}
    found = _found(bash(f"bootstrap_find_python {_VERSION}", path="/nonexistent", env=env))
    assert found == str(good)


def test_uv_is_asked_last_and_installs_what_it_lacks(
    bash: Bash, executable: Executable, tmp_path: Path
) -> None:
    good = executable("managed/python", _REAL)
    uv = executable(
        "uv/uv",
        f"""case "$1 $2" in
        'python find') test -e {tmp_path}/installed && echo {good};;
        'python install') : > {tmp_path}/installed;;
        esac""",
    )
    out, err = bash(f"bootstrap_uv_python {_VERSION}", path=str(uv.parent)).communicate(timeout=60)
    assert out.strip() == str(good)
    assert err == f"pants: installing Python {_VERSION} with uv\n"
    assert _found(bash(f"bootstrap_uv_python {_VERSION}", path=str(uv.parent))) == str(good)


def test_without_any_python_one_line_says_how_to_get_one(bash: Bash) -> None:
    process = bash("bootstrap_python39", path="/nonexistent")
    out, err = process.communicate(timeout=60)
    assert (out, process.returncode) == ("", 1)
    assert err.count("\n") == 1
    for remedy in ("uv python install 3.9", "pyenv install 3.9", "PANTS_PYTHON="):
        assert remedy in err


def test_a_wrong_pants_python_is_an_error(bash: Bash, executable: Executable) -> None:
    wrong = executable("wrong/python3.9", "exit 1")
    process = bash("bootstrap_python39", env={"PANTS_PYTHON": str(wrong)})
    out, err = process.communicate(timeout=60)
    assert (out, process.returncode) == ("", 1)
    assert err == (
        f"pants: PANTS_PYTHON={wrong} is no working Python 3.9 with venv: "
        "point it at one, or unset it\n"
    )
