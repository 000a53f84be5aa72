from pathlib import Path

import pytest

from locks.check import problems
from locks.lock_file import header
from locks.resolves import RESOLVES, LockedResolve, UnknownResolveError, chosen, locked_elsewhere

_HASH = "--hash=sha256:" + "a" * 64
_DYNAMO = LockedResolve("dynamo", shared_pins=True)
_ONNX = LockedResolve("onnx", shared_pins=True)


def _write(root: Path, resolve: LockedResolve, asked: str, pins: str) -> None:
    resolve.requirements(root).parent.mkdir(parents=True, exist_ok=True)
    resolve.requirements(root).write_text(asked)
    resolve.lock(root).write_text(header(asked) + pins)


def test_a_lock_that_belongs_has_no_problem(tmp_path: Path) -> None:
    _write(tmp_path, _DYNAMO, "Torch>=2\n", f"torch==2.12.0 {_HASH}\nsympy==1.14.0 {_HASH}\n")
    assert problems(tmp_path, [_DYNAMO]) == ()


def test_an_edit_of_the_requirements_is_noticed(tmp_path: Path) -> None:
    _write(tmp_path, _DYNAMO, "torch==2.12.0\n", f"torch==2.12.0 {_HASH}\n")
    _DYNAMO.requirements(tmp_path).write_text("torch==2.12.0\nnumpy\n")
    assert problems(tmp_path, [_DYNAMO]) == (
        "3rdparty/dynamo/lock.txt was compiled from another requirements.in: "
        "run `./pants run 3rdparty:compile_locks -- dynamo`",
    )


@pytest.mark.parametrize(
    ("pins", "message"),
    [
        (f"torch==2.13.0 {_HASH}\n", "lock.txt has 2.13.0 for `torch==2.12.0`"),
        (f"numpy==2.4.6 {_HASH}\n", "lock.txt has nothing for `torch==2.12.0`"),
        ("torch==2.12.0\n", "lock.txt has no sha256 for torch==2.12.0"),
        ("torch==2.12.0 --hash=md5:0\n", "lock.txt has no sha256 for torch==2.12.0"),
        (f"torch==2.12.0 {_HASH}\nsympy>=1\n", "is no pin: sympy>=1"),
        (f"--index-url https://models.invalid\ntorch==2.12.0 {_HASH}\n", "names a host or a file"),
    ],
)
def test_an_edit_of_the_lock_is_noticed(tmp_path: Path, pins: str, message: str) -> None:
    _write(tmp_path, _DYNAMO, "torch==2.12.0\n", pins)
    (problem,) = problems(tmp_path, [_DYNAMO])
    assert message in problem
    assert problem.endswith("run `./pants run 3rdparty:compile_locks -- dynamo`")


def test_a_missing_lock_is_named(tmp_path: Path) -> None:
    _write(tmp_path, _DYNAMO, "torch==2.12.0\n", "")
    _DYNAMO.lock(tmp_path).unlink()
    (problem,) = problems(tmp_path, [_DYNAMO])
    assert problem.startswith("3rdparty/dynamo: lock.txt is missing")


def test_resolves_that_share_pins_agree(tmp_path: Path) -> None:
    _write(tmp_path, _DYNAMO, "torch==2.12.0\n", f"torch==2.12.0 {_HASH}\nnumpy==2.4.6 {_HASH}\n")
    _write(tmp_path, _ONNX, "torch==2.12.0\n", f"torch==2.12.0 {_HASH}\nnumpy==2.4.5 {_HASH}\n")
    (problem,) = problems(tmp_path, [_DYNAMO, _ONNX])
    assert problem.startswith("3rdparty/dynamo and 3rdparty/onnx pin numpy differently")


def test_an_unknown_resolve_is_refused() -> None:
    with pytest.raises(UnknownResolveError, match=r"no resolve 'onxx': 3rdparty/ has .*onnx"):
        chosen(["onxx"])


def test_a_resolve_of_another_index_is_compiled_by_name_alone() -> None:
    (elsewhere,) = (resolve for resolve in RESOLVES if resolve.other_index)
    assert chosen([elsewhere.name]) == (elsewhere,)
    assert elsewhere not in chosen([])
    assert {*chosen([]), elsewhere} == set(RESOLVES)


def test_and_is_checked_where_it_is_locked(tmp_path: Path) -> None:
    assert locked_elsewhere(tmp_path) == ()
    (elsewhere,) = (resolve for resolve in RESOLVES if resolve.other_index)
    _write(tmp_path, elsewhere, "torch==2.15.0.dev1\n", f"torch==2.15.0.dev1 {_HASH}\n")
    assert locked_elsewhere(tmp_path) == (elsewhere,)
    assert problems(tmp_path, locked_elsewhere(tmp_path)) == ()
