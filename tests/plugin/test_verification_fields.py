"""What a BUILD file may say of a verification, and each mistake in it with its remedy."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from pants.engine.addresses import Address
from pants.engine.internals.scheduler import ExecutionError
from pants.testutil.rule_runner import RuleRunner

from model_export.plugin.export_spec import export_spec
from model_export.plugin.goals.test import ArtifactTestFieldSet
from model_export.plugin.verification_checks import check_tolerance

ONNX = 'config={"export_format": "onnx"}'
OPENVINO = 'config={"export_format": "openvino"}'
BUILD = """\
local_checkpoint(name="ckpt", sources=["*.json", "*.safetensors"])
export_model(name="x", model=":ckpt", {})
"""


class Wrong(NamedTuple):
    """Fields of an `export_model` and the message that they must give."""

    name: str
    fields: str
    message: str


WRONG_FIELDS = [
    Wrong(
        "unknown_bound",
        f'{ONNX}, tolerance={{"max_asb": 1}}',
        "`tolerance['max_asb']` is no bound. Did you mean 'max_abs'? Known: argmax, cosine,",
    ),
    Wrong(
        "name_of_numpy",
        f'{ONNX}, tolerance={{"rtol": 1}}',
        "`tolerance['rtol']` is no bound. Did you mean 'max_rel'?",
    ),
    Wrong(
        "not_a_dict",
        f"{ONNX}, tolerance=1e-3",
        "`tolerance` must be a dict like {'max_abs': 1e-3}, not float.",
    ),
    Wrong(
        "text",
        f'{ONNX}, tolerance={{"max_abs": "1e-3"}}',
        "`tolerance['max_abs']` must be a number, not '1e-3'.",
    ),
    Wrong(
        "bool",
        f'{ONNX}, tolerance={{"max_abs": True}}',
        "`tolerance['max_abs']` must be a number, not True.",
    ),
    Wrong(
        "zero",
        f'{ONNX}, tolerance={{"max_rel": 0}}',
        "`tolerance['max_rel']` is 0.0. It is the largest difference of an output, relative to its "
        "largest value: 0 < max_rel.",
    ),
    Wrong(
        "infinite",
        f'{ONNX}, tolerance={{"kl": 1e999}}',
        "`tolerance['kl']` is inf. It is the largest mean KL divergence",
    ),
    Wrong(
        "cosine",
        f'{ONNX}, tolerance={{"cosine": 1.5}}',
        "`tolerance['cosine']` is 1.5. It is the smallest cosine of an output and the expected "
        "one: 0 < cosine <= 1.",
    ),
    Wrong(
        "tokens",
        f'{ONNX}, tolerance={{"tokens": -0.1}}',
        "`tolerance['tokens']` is -0.1. It is the smallest share of generated tokens that are the "
        "expected ones: 0 <= tokens <= 1.",
    ),
    Wrong(
        "bounds_of_nothing",
        f'{ONNX}, skip_verify=True, tolerance={{"max_abs": 1}}',
        "`tolerance` has no effect with skip_verify=True. Remove one of the two.",
    ),
    Wrong(
        "bfloat16_on_a_cpu",
        f'{ONNX}, dtype="bfloat16"',
        "`dtype` is 'bfloat16', which ONNX Runtime doesn't run on a CPU, so that the artifact "
        "can't be verified. Use 'float16' or 'float32', or set skip_verify=True",
    ),
    *(
        Wrong(
            f"bfloat16_{provider}",
            f'config={{"export_format": "onnx", "ort_fusions": "{provider}"}}, dtype="bfloat16", '
            "skip_verify=True",
            f"`dtype` is 'bfloat16', which config['ort_fusions'] of '{provider}' rules out: ",
        )
        for provider in ("cpu", "dml", "webgpu")
    ),
    Wrong(
        "bfloat16_cuda",
        'config={"export_format": "onnx", "ort_fusions": "cuda"}, dtype="bfloat16"',
        "`dtype` is 'bfloat16', which ONNX Runtime doesn't run on a CPU",
    ),
    Wrong("timeout", f"{ONNX}, timeout=0", "The 'timeout' field in target"),
]


@pytest.mark.parametrize("wrong", WRONG_FIELDS, ids=lambda wrong: wrong.name)
def test_wrong_field(rule_runner: RuleRunner, wrong: Wrong) -> None:
    folder = f"verification/{wrong.name}"
    rule_runner.write_files({f"{folder}/BUILD": BUILD.format(wrong.fields)})
    with pytest.raises(ExecutionError) as caught:
        rule_runner.get_target(Address(folder, target_name="x"))
    assert wrong.message in str(caught.value)
    assert f"{folder}:x" in str(caught.value)


RIGHT_FIELDS = [
    f'{ONNX}, dtype="bfloat16", skip_verify=True',
    'config={"export_format": "onnx", "ort_fusions": "cuda"}, dtype="bfloat16", skip_verify=True',
    *(
        f'config={{"export_format": "onnx", "ort_fusions": "{provider}"}}, dtype="float16"'
        for provider in ("cpu", "cuda", "dml", "webgpu")
    ),
    'config={"export_format": "dynamo"}, dtype="bfloat16"',
    'config={"export_format": "executorch"}, dtype="bfloat16"',
    f'{OPENVINO}, dtype="bfloat16"',
    f'{ONNX}, dtype="float16", tolerance={{"argmax": 0, "tokens": 1}}, timeout=30',
    f"{ONNX}, tolerance={{}}",
]


@pytest.mark.parametrize("fields", RIGHT_FIELDS)
def test_right_fields(rule_runner: RuleRunner, fields: str) -> None:
    folder = f"verification/right{RIGHT_FIELDS.index(fields)}"
    rule_runner.write_files({f"{folder}/BUILD": BUILD.format(fields)})
    rule_runner.get_target(Address(folder, target_name="x"))


def test_bounds_are_floats_whatever_a_build_file_writes() -> None:
    assert check_tolerance({"max_abs": 1, "argmax": 0}) == {"max_abs": 1.0, "argmax": 0.0}
    assert all(isinstance(bound, float) for bound in check_tolerance({"max_abs": 1}).values())


def test_how_it_is_verified_is_no_part_of_the_export(rule_runner: RuleRunner) -> None:
    specs = []
    for index, more in enumerate(
        ["", 'tolerance={"max_abs": 1}', "skip_verify=True", "timeout=9", "skip_tests=True"]
    ):
        folder = f"verification/spec{index}"
        rule_runner.write_files({f"{folder}/BUILD": BUILD.format(f"{ONNX}, {more}")})
        specs.append(export_spec(rule_runner.get_target(Address(folder, target_name="x"))))
    assert specs == [specs[0]] * 5


def test_skip_tests_leaves_a_target_out_of_test(rule_runner: RuleRunner) -> None:
    rule_runner.write_files(
        {
            "verification/out/BUILD": BUILD.format(f"{ONNX}, skip_tests=True"),
            "verification/in/BUILD": BUILD.format(f"{ONNX}, skip_verify=True"),
        }
    )
    out, tested = (
        rule_runner.get_target(Address(f"verification/{folder}", target_name="x"))
        for folder in ("out", "in")
    )
    assert not ArtifactTestFieldSet.is_applicable(out)
    assert ArtifactTestFieldSet.is_applicable(tested)
