"""`wheel_files` names the field that is wrong; that its files arrive, tests/apps shows."""

from __future__ import annotations

import pytest
from pants.core.target_types import FileSourceField
from pants.engine.addresses import Address
from pants.engine.internals.scheduler import ExecutionError
from pants.engine.target import HydratedSources, HydrateSourcesRequest
from pants.testutil.rule_runner import RuleRunner

from model_export.plugin.wheel_files_target import WheelFilesSourcesField


def _files(rule_runner: RuleRunner, address: Address) -> HydratedSources:
    sources = rule_runner.get_target(address)[WheelFilesSourcesField]
    request = HydrateSourcesRequest(
        sources, for_sources_types=(FileSourceField,), enable_codegen=True
    )
    return rule_runner.request(HydratedSources, [request])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            'package="packagin", path="packaging", resolve="checkpoints"',
            "`package` 'packagin' isn't locked in the resolve 'checkpoints'. "
            "Did you mean 'packaging'?",
        ),
        (
            'package="packaging", path="packaging", resolve="checkpoint"',
            "`resolve` is 'checkpoint', which is no resolve. Did you mean 'checkpoints'?",
        ),
        (
            'package="packaging", path="../packaging", resolve="checkpoints"',
            "`path` leaves the wheel: '../packaging'.",
        ),
    ],
    ids=["package", "resolve", "path"],
)
def test_wrong_field(
    rule_runner: RuleRunner, fields: str, message: str, request: pytest.FixtureRequest
) -> None:
    folder = f"wheel_files/{request.node.callspec.id}"
    rule_runner.write_files({f"{folder}/BUILD": f'wheel_files(name="x", {fields})\n'})
    with pytest.raises(ExecutionError) as caught:
        _files(rule_runner, Address(folder, target_name="x"))
    assert message in str(caught.value)
    assert f"{folder}:x" in str(caught.value)
