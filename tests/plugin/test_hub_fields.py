"""The fields of `export_model` that belong to a hub id."""

from __future__ import annotations

import pytest
from pants.engine.addresses import Address
from pants.engine.internals.scheduler import ExecutionError
from pants.testutil.rule_runner import RuleRunner

from model_export.checkpoint_ask import CheckpointAsk, LockRequest
from model_export.plugin.hub_fields import hub_ask
from model_export.plugin.target_types import ModelField

CONFIG = 'config={"export_format": "onnx"}'


def _target(rule_runner: RuleRunner, folder: str, model: str, more: str) -> Address:
    build = f'export_model(name="x", model="{model}", {CONFIG}, {more})\n'
    rule_runner.write_files({f"hub_fields/{folder}/BUILD": build})
    return Address(f"hub_fields/{folder}", target_name="x")


def test_says_what_to_lock(rule_runner: RuleRunner) -> None:
    more = """
    revision="refs/pr/3", include=["b/*", "a", "b/*"], exclude=["*.txt"], gguf_file="q/m.gguf",
    allow_pickle=True, trust_remote_code=True,
    """
    target = rule_runner.get_target(_target(rule_runner, "all", "acme/tiny", more))
    ask = CheckpointAsk(
        "acme/tiny",
        "refs/pr/3",
        ("a", "b/*"),
        ("*.txt",),
        "q/m.gguf",
        pickle=True,
        remote_code=True,
    )
    assert hub_ask(target, target[ModelField].value) == ask
    request = LockRequest((ask, CheckpointAsk("acme/other")), "run")
    assert set(LockRequest.from_json(request.to_json()).asks) == set(request.asks)


def test_has_defaults(rule_runner: RuleRunner) -> None:
    target = rule_runner.get_target(_target(rule_runner, "none", "acme/tiny", ""))
    assert hub_ask(target, "acme/tiny") == CheckpointAsk("acme/tiny", "main")
    assert hub_ask(target, ":ckpt") is None


@pytest.mark.parametrize(
    ("model", "more", "message"),
    [
        (":c", 'revision="v1"', "`revision` belongs to a hub id, and `model` is the address ':c'"),
        (":c", "allow_pickle=True", "Remove it, or set it on that checkpoint."),
        (":c", "trust_remote_code=True", "Remove it, or set it on that checkpoint."),
        (":c", 'include=["*"]', "`include` belongs to a hub id"),
        ("a/b", 'revision="a b"', "`revision` is 'a b', which is no revision"),
        ("a/b", 'revision="../x"', "`revision` is '../x', which is no revision"),
        ("a/b", 'include=["../x"]', "`include` has '../x', which can't match a file"),
        ("a/b", 'exclude=["/x"]', "`exclude` has '/x', which can't match a file"),
        ("a/b", f"exclude={['x'] * 101}", "`exclude` has more than 100 patterns"),
        ("a/b", 'gguf_file="m.bin"', "`gguf_file` is 'm.bin'. Write a file that ends in .gguf"),
        ("a/b", 'gguf_file="../m.gguf"', "`gguf_file` leaves the repository of the hub id"),
    ],
)
def test_refuses(rule_runner: RuleRunner, model: str, more: str, message: str) -> None:
    address = _target(rule_runner, "refused", model, more)
    with pytest.raises(ExecutionError) as caught:
        rule_runner.get_target(address)
    assert "hub_fields/refused:x: " in str(caught.value) and message in str(caught.value)
