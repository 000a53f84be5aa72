import pytest
from packaging.version import Version

from locks.lock_file import (
    LockFileError,
    digest,
    header,
    parse_lock,
    parse_requirements,
    recorded_digest,
)

_HASH = "sha256:" + "0" * 64


def test_a_lock_entry_keeps_its_marker_and_hashes() -> None:
    (pin,) = parse_lock(
        f"# comment\nRuamel.YAML==0.19.1 ; sys_platform == 'linux' \\\n    --hash={_HASH} \\\n"
        f"    --hash=sha256:{'f' * 64}\n    # via nncf\n"
    )
    assert pin.name == "ruamel-yaml"
    assert pin.version == Version("0.19.1")
    assert pin.marker == 'sys_platform == "linux"'
    assert pin.hashes == (_HASH, f"sha256:{'f' * 64}")
    assert pin.hashed


@pytest.mark.parametrize("hashes", ["", "--hash=md5:00", f"--hash={_HASH} --hash=sha256:12"])
def test_an_entry_is_hashed_only_by_whole_sha256(hashes: str) -> None:
    (pin,) = parse_lock(f"torch==2.12.0 {hashes}\n")
    assert not pin.hashed


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("torch>=2", "line 2 is no pin: torch>=2"),
        ("torch", "line 2 is no pin: torch"),
        ("torch==2.12.0,!=2.13", "line 2 is no pin"),
        ("torch @ https://models.invalid/torch.whl", "line 2 is no pin"),
        ("--index-url models.invalid", "line 2 is no requirement: --index-url models.invalid"),
    ],
)
def test_a_lock_holds_pins_only(line: str, message: str) -> None:
    with pytest.raises(LockFileError, match=message):
        parse_lock(f"# comment\n{line}\n")


def test_the_digest_is_of_what_is_asked_for() -> None:
    asked = "# Exporters.\ntorch==2.12.0\nnumpy\n"
    assert digest(asked) == digest("numpy  # arrays\n\ntorch==2.12.0")
    assert digest(asked) != digest("torch==2.12.1\nnumpy\n")
    assert recorded_digest(header(asked) + "torch==2.12.0\n") == digest(asked)
    assert recorded_digest("torch==2.12.0\n") is None


def test_a_requirement_may_have_extras_and_a_marker() -> None:
    (requirement,) = parse_requirements('coverage[toml]>=7 ; python_version < "3.10"\n')
    assert requirement.name == "coverage"
    assert str(requirement.marker) == 'python_version < "3.10"'
