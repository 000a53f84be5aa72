"""The field `adapter`: what it may name, what a build then depends on, and what is locked."""

from __future__ import annotations

import pytest
from pants.engine.addresses import Address
from pants.engine.internals.scheduler import ExecutionError
from pants.engine.rules import QueryRule
from pants.engine.target import Dependencies, DependenciesRequest, Targets
from pants.testutil.rule_runner import RuleRunner

from model_export.checkpoint_ask import CheckpointAsk
from model_export.checkpoint_lock import LockedCheckpoint, LockedFile
from model_export.plugin.adapter_field import adapter_ask
from model_export.plugin.adapters import Adapter, AdapterRequest
from model_export.plugin.artifacts import Artifact, ArtifactRequest
from model_export.spec import CheckpointOrigin, ExportRequest, ExportSpec, Toolchain
from plugin.conftest import make_rule_runner

BASE = 'local_checkpoint(name="base", sources=["config.json", "model.safetensors"])\n'
LORA = 'local_checkpoint(name="lora", sources=["adapter/*"], root="adapter")\n'


@pytest.fixture(scope="module")
def runner() -> RuleRunner:
    return make_rule_runner(queries=[QueryRule(Adapter, [AdapterRequest])])


def _export(adapter: str) -> str:
    return (
        'export_model(name="x", model=":base", config={"export_format": "onnx"}, '
        f"adapter={adapter!r})\n"
    )


def _write(runner: RuleRunner, folder: str, build: str) -> Address:
    runner.write_files(
        {
            f"{folder}/BUILD": build,
            f"{folder}/config.json": '{"architectures": ["BertModel"]}',
            f"{folder}/model.safetensors": "",
            f"{folder}/notes.txt": "",
            f"{folder}/adapter/adapter_config.json": "{}",
            f"{folder}/adapter/adapter_model.safetensors": folder,
        }
    )
    return Address(folder, target_name="x")


def test_its_files_and_where_they_are_from(runner: RuleRunner) -> None:
    address = _write(runner, "adapters/files", BASE + LORA + _export(":lora"))
    found = runner.request(Adapter, [AdapterRequest(address)])
    assert found.folder is not None
    assert found.folder.origin == CheckpointOrigin("local", "adapters/files/adapter")
    dependencies = runner.get_target(address)[Dependencies]
    targets = runner.request(Targets, [DependenciesRequest(dependencies)])
    assert {target.address.target_name for target in targets} == {"base", "lora"}


def test_it_is_part_of_the_key() -> None:
    spec = ExportSpec("onnx", {"dynamic": True})
    base, toolchain = CheckpointOrigin("local", "m"), Toolchain("onnx", "0")
    without = ExportRequest(spec, base, toolchain)
    request = ExportRequest(spec, base, toolchain, CheckpointOrigin("local", "m/adapter"))
    assert without.to_json() != request.to_json()
    for one in (without, request):
        assert ExportRequest.from_json(one.to_json()) == one


@pytest.mark.parametrize(
    ("adapter", "expected"),
    [
        ("acme/lora", CheckpointAsk("acme/lora", adapter=True)),
        ("acme/lora@v1.0", CheckpointAsk("acme/lora", "v1.0", adapter=True)),
        (":lora", None),
    ],
)
def test_what_is_asked_of_the_hub(
    runner: RuleRunner, adapter: str, expected: CheckpointAsk | None
) -> None:
    address = _write(runner, "adapters/asked", BASE + LORA + _export(adapter))
    assert adapter_ask(runner.get_target(address)) == expected


def test_an_entry_of_a_model_does_not_answer_for_an_adapter() -> None:
    model = LockedCheckpoint(
        "acme/a",
        "main",
        "a" * 40,
        None,
        False,
        False,
        False,
        (),
        (),
        None,
        (LockedFile("config.json", 1, "1" * 64), LockedFile("model.safetensors", 1, "2" * 64)),
    )
    assert CheckpointAsk("acme/a").answered_by(model)
    assert not CheckpointAsk("acme/a", adapter=True).answered_by(model)


WRONG_FORMS = [
    ("", "`adapter` is empty. Write the address"),
    ("./lora", "`adapter` is a path: './lora'. Make the folder a `local_checkpoint`"),
    ("acme/lora@..", "`adapter` is 'acme/lora@..', whose part after '@' is no revision."),
    ("acme/lo--ra", "`adapter` is 'acme/lo--ra', which is no hub id."),
]


@pytest.mark.parametrize("adapter, message", WRONG_FORMS)
def test_wrong_form(runner: RuleRunner, adapter: str, message: str) -> None:
    folder = f"adapters/form{WRONG_FORMS.index((adapter, message))}"
    address = _write(runner, folder, BASE + _export(adapter))
    with pytest.raises(ExecutionError) as caught:
        runner.get_target(address)
    assert f"{folder}:x: {message}" in str(caught.value)


UNBUILDABLE = [
    ("absent", LORA, ":loar", "x: `adapter` is ':loar', and there is no such target. Did you mean"),
    (
        "other",
        'file(name="lora", source="notes.txt")\n',
        ":lora",
        "x: `adapter` is ':lora', a `file` target, which is no checkpoint.",
    ),
    (
        "model",
        "",
        ":base",
        "base: `sources` gives an adapter without adapter_config.json at its root. Its files are "
        "config.json, model.safetensors: choose the folder",
    ),
    (
        "random",
        'random_checkpoint(name="lora")\n',
        ":lora",
        "lora: `config` makes a whole model, and is named as an `adapter`.",
    ),
    (
        "unlocked",
        "",
        "acme/lora",
        "x: `adapter` 'acme/lora' isn't locked: hub ids are pinned in 3rdparty/checkpoints.lock",
    ),
]


@pytest.mark.parametrize("name, more, adapter, message", UNBUILDABLE)
def test_unbuildable(runner: RuleRunner, name: str, more: str, adapter: str, message: str) -> None:
    address = _write(runner, f"adapters/{name}", BASE + more + _export(adapter))
    with pytest.raises(ExecutionError) as caught:
        runner.request(Artifact, [ArtifactRequest(address)])
    assert f"adapters/{name}:{message}" in str(caught.value)
