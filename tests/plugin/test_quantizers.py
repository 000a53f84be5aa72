"""What a BUILD file may say of quantizers, and the one line for each mistake."""

from __future__ import annotations

import pytest
from pants.engine.addresses import Address
from pants.engine.internals.scheduler import ExecutionError
from pants.engine.target import Dependencies, DependenciesRequest, Targets
from pants.testutil.rule_runner import QueryRule, RuleRunner

from model_export.plugin.calibration_files import calibration_files
from model_export.plugin.export_spec import export_spec
from model_export.plugin.named_files import NamedFiles, NamedFilesRequest
from model_export.plugin.quantizer_fields import CalibrationField
from model_export.spec import CheckpointOrigin, ExportRequest, Toolchain
from plugin.conftest import make_rule_runner

_DYNAMIC = '{"type": "OnnxRuntimeQuantizer", "config": "OnnxRuntimeDynamicConfig"}'


def _build(fields: str, export_format: str = "onnx", config: str = "") -> str:
    return (
        'local_checkpoint(name="ckpt", sources=["config.json"])\n'
        "export_model(\n"
        '    name="x",\n'
        '    model=":ckpt",\n'
        f'    config={{"export_format": "{export_format}", {config}}},\n'
        f"    {fields}\n"
        ")\n"
    )


def test_settings_reach_the_spec(rule_runner: RuleRunner) -> None:
    fields = """quantizer={
        "type": "NNCFOnnxQuantizer",
        "config": "NNCFQuantizationConfig",
        "preset": "MIXED",
        "ignored_scope": {"names": ["a"], "subgraphs": [{"inputs": ["b"], "outputs": ["c"]}]},
        "advanced_parameters": {"smooth_quant_alphas": {"matmul": 0.5}},
    },
    calibration={"files": [":texts"], "samples": 8},"""
    rule_runner.write_files({"quantized/all/BUILD": _build(fields)})
    target = rule_runner.get_target(Address("quantized/all", target_name="x"))
    spec = export_spec(target)
    assert spec.quantizer == {
        "type": "NNCFOnnxQuantizer",
        "config": "NNCFQuantizationConfig",
        "preset": "MIXED",
        "ignored_scope": {"names": ["a"], "subgraphs": [{"inputs": ["b"], "outputs": ["c"]}]},
        "advanced_parameters": {"smooth_quant_alphas": {"matmul": 0.5}},
    }
    assert spec.calibration == {"files": [":texts"], "samples": 8, "seed": 0, "max_length": 128}
    request = ExportRequest(spec, CheckpointOrigin("local", "x"), Toolchain("onnx", "0"))
    assert ExportRequest.from_json(request.to_json()) == request


def test_defaults_are_the_engines(rule_runner: RuleRunner) -> None:
    rule_runner.write_files(
        {
            "quantized/one/BUILD": _build('quantizer={"type": "OnnxRuntimeQuantizer"},'),
            "quantized/two/BUILD": _build(
                'quantizer={"type": "NNCFOpenVINOQuantizer",'
                ' "config": "NNCFWeightCompressionConfig"},',
                "openvino",
            ),
        }
    )
    one = export_spec(rule_runner.get_target(Address("quantized/one", target_name="x")))
    two = export_spec(rule_runner.get_target(Address("quantized/two", target_name="x")))
    assert one.quantizer == {"type": "OnnxRuntimeQuantizer", "config": "OnnxRuntimeStaticConfig"}
    assert two.quantizer is not None and two.quantizer["mode"] == "INT8_ASYM"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ("quantizer={},", r"`quantizer` is empty"),
        ('quantizer={"per_channel": True},', r"`quantizer` has no 'type'"),
        (
            'quantizer={"type": "OnnxruntimeQuantiser"},',
            r"`quantizer\['type'\]` is .*no quantizer. Did you mean 'OnnxRuntimeQuantizer'",
        ),
        (
            'quantizer={"type": "onnxruntime_dynamic"},',
            r"Did you mean 'OnnxRuntimeQuantizer'",
        ),
        (
            'quantizer={"type": "OnnxRuntimeQuantizer", "config": "NNCFQuantizationConfig"},',
            r"`quantizer\['config'\]` is 'NNCFQuantizationConfig', which OnnxRuntimeQuantizer",
        ),
        (
            'quantizer={"type": "OnnxRuntimeQuantizer", "config": "OnnxRuntimeDynamicConfig",'
            ' "activation_type": "QInt8"},',
            r"`quantizer\['activation_type'\]` is no setting of OnnxRuntimeDynamicConfig, but of "
            r"OnnxRuntimeStaticConfig",
        ),
        (
            'quantizer={"type": "OnnxRuntimeQuantizer", "weight_type": "int8"},',
            r"`quantizer\['weight_type'\]` is 'int8', which QuantType doesn't have",
        ),
        (
            'quantizer={"type": "OnnxRuntimeQuantizer", "per_chanel": True},',
            r"Did you mean 'per_channel'",
        ),
        (
            'quantizer={"type": "OnnxRuntimeQuantizer", "per_channel": 1},',
            r"must be True or False, not 1",
        ),
        (
            'quantizer={"type": "OnnxRuntimeQuantizer", "nodes_to_exclude": "a"},',
            r"`quantizer\['nodes_to_exclude'\]` must be a list",
        ),
        (
            'quantizer={"type": "OnnxRuntimeQuantizer", "extra_options": {"MatmulConstOnly": 1}},',
            r"Did you mean 'MatMulConstBOnly'",
        ),
        (
            'quantizer={"type": "OnnxRuntimeQuantizer", "extra_options": {"SmoothQuant": True}},',
            r"needs the package neural-compressor",
        ),
        (
            'quantizer={"type": "OnnxRuntimeQuantizer", "activation_type": "QFLOAT8E4M3FN"},',
            r"needs calibrate_method='Distribution'",
        ),
        (
            'quantizer={"type": "OnnxRuntimeQuantizer", "weight_type": "QUInt8"},',
            r"is 'QUInt8' under activations of QInt8",
        ),
        (
            'quantizer={"type": "OnnxRuntimeQuantizer",'
            ' "calibration_providers": ["CUDAExecutionProvider"]},',
            r"doesn't have",
        ),
        (
            'quantizer={"type": "NNCFOnnxQuantizer", "ignored_scope": {"name": ["a"]}},',
            r"`quantizer\['ignored_scope'\]\['name'\]` is no field of IgnoredScope. "
            r"Did you mean 'names'",
        ),
        (
            'quantizer={"type": "NNCFOnnxQuantizer", "config": "NNCFWeightCompressionConfig",'
            ' "all_layers": True},',
            r"`quantizer\['all_layers'\]` has no meaning for the mode INT8_ASYM",
        ),
        (
            'quantizer={"type": "NNCFOnnxQuantizer", "config": "NNCFWeightCompressionConfig",'
            ' "mode": "NF4"},',
            r"`quantizer\['mode'\]` is 'NF4', which NNCF has for OpenVINO only",
        ),
        (
            'quantizer={"type": "NNCFOnnxQuantizer", "config": "NNCFWeightCompressionConfig",'
            ' "mode": "INT4_SYM", "gptq": True},',
            r"`quantizer\['gptq'\]` belongs to NNCFOpenVINOQuantizer",
        ),
        (
            'quantizer={"type": "NNCFOnnxQuantizer", "config": "NNCFWeightCompressionConfig",'
            ' "mode": "INT4_SYM", "compression_format": "FQ_LORA"},',
            r"is for training",
        ),
        (
            'quantizer={"type": "NNCFOnnxQuantizer", "config": "NNCFWeightCompressionConfig",'
            ' "mode": "INT4_SYM", "advanced_parameters": {"statistics_path": "x"}},',
            r"is a folder of this machine",
        ),
        (
            'quantizer={"type": "NNCFOpenVINOQuantizer"},',
            r"quantizes openvino, not onnx. Take OnnxRuntimeQuantizer or NNCFOnnxQuantizer or",
        ),
        (
            'quantizer={"type": "PT2EQuantizer", "quantizer": "XNNPACKQuantizer"},',
            r"`quantizer\['quantizer'\]` is 'XNNPACKQuantizer', whose operators onnx doesn't run",
        ),
        (
            'quantizer={"type": "PT2EQuantizer", "is_dynamic": True},',
            r"`quantizer\['is_dynamic'\]` is True, and torch 2.12.0 has no ONNX",
        ),
        (
            'quantizer={"type": "PT2EQuantizer", "is_qat": True},',
            r"an export doesn't train",
        ),
        (
            'quantizer={"type": "NNCFTorchFXQuantizer"},',
            r"`quantizer\['config'\]` is 'NNCFQuantizationConfig', and nncf 3.4.0 fails on traced",
        ),
        (f'dtype="float16", quantizer={_DYNAMIC},', r"`dtype` is 'float16' with a quantizer"),
        (
            f'quantizer={{"decode": {_DYNAMIC}}},',
            r"`quantizer\['decode'\]` is no component of this export. It builds model",
        ),
        (
            f'for_generation=True, quantizer={{"model": {_DYNAMIC}}},',
            r"`quantizer\['model'\]` is no component of an export for generation",
        ),
        (
            f'for_generation=True, components=["prefill"], quantizer={{"decode": {_DYNAMIC}}},',
            r"`quantizer\['decode'\]` is no component of this export. It builds prefill",
        ),
        (
            'calibration={"files": [":texts"]},',
            r"`calibration` has no effect without a quantizer",
        ),
        (
            f'quantizer={_DYNAMIC}, calibration={{"files": [":texts"]}},',
            r"`calibration` has no effect: this quantizer doesn't observe",
        ),
        (
            'quantizer={"type": "OnnxRuntimeQuantizer"}, calibration={"files": []},',
            r"`calibration\['files'\]` is \[\]",
        ),
        (
            'quantizer={"type": "OnnxRuntimeQuantizer"},'
            ' calibration={"files": [":t"], "sample": 3},',
            r"`calibration\['sample'\]` is unknown. Did you mean 'samples'",
        ),
    ],
)
def test_one_line_says_what_is_wrong(rule_runner: RuleRunner, fields: str, message: str) -> None:
    rule_runner.write_files({"quantized/wrong/BUILD": _build(fields)})
    with pytest.raises(ExecutionError, match=message):
        rule_runner.get_target(Address("quantized/wrong", target_name="x"))


@pytest.mark.parametrize(
    ("config", "fields", "field"),
    [
        ('"opset_version": 20', "", r"config\['opset_version'\]"),
        (
            '"opset_version": 21',
            'for_generation=True, component_config={"decode": {"opset_version": 20}}',
            r"component_config\['decode'\]\['opset_version'\]",
        ),
    ],
)
def test_four_bits_below_opset_21(
    rule_runner: RuleRunner, config: str, fields: str, field: str
) -> None:
    quantizer = '{"type": "NNCFOnnxQuantizer", "config": "NNCFWeightCompressionConfig", "mode": %r}'
    for mode, folder in (("INT8_SYM", "eight"), ("INT4_ASYM", "four")):
        build = _build(f"quantizer={quantizer % mode}, {fields}", config=config)
        rule_runner.write_files({f"quantized/{folder}/BUILD": build})
    rule_runner.get_target(Address("quantized/eight", target_name="x"))
    with pytest.raises(ExecutionError, match=rf"`{field}` is 20, where .*Write 21 or more"):
        rule_runner.get_target(Address("quantized/four", target_name="x"))


@pytest.mark.parametrize(
    ("quantizer", "message"),
    [
        ('{"type": "PT2EQuantizer", "is_dynamic": True}', r"OpenVINO 2026.3.1 doesn't convert"),
        (
            '{"type": "NNCFTorchFXQuantizer", "config": "NNCFWeightCompressionConfig",'
            ' "mode": "INT4_SYM"}',
            r"`quantizer\['mode'\]` is 'INT4_SYM', whose operators.*Take NNCFOpenVINOQuantizer",
        ),
        ('{"type": "OnnxRuntimeQuantizer"}', r"quantizes onnx, not openvino"),
    ],
)
def test_what_openvino_does_not_convert(
    rule_runner: RuleRunner, quantizer: str, message: str
) -> None:
    build = _build(f"quantizer={quantizer},", "openvino")
    rule_runner.write_files({"quantized/openvino/BUILD": build})
    with pytest.raises(ExecutionError, match=message):
        rule_runner.get_target(Address("quantized/openvino", target_name="x"))


@pytest.mark.parametrize(
    ("quantizer", "message"),
    [
        (
            '{"type": "PT2EQuantizer", "quantizer": "XNNPACKQuantizer", "is_dynamic": True}',
            r"Add is_per_channel=True",
        ),
        ('{"type": "PT2EQuantizer"}', r"whose operators executorch doesn't run"),
        (
            '{"type": "NNCFTorchFXQuantizer", "config": "NNCFWeightCompressionConfig",'
            ' "mode": "INT4_SYM"}',
            r"`quantizer\['mode'\]` is 'INT4_SYM', whose weights NNCF unpacks by a shift",
        ),
    ],
)
def test_what_executorch_does_not_run(
    rule_runner: RuleRunner, quantizer: str, message: str
) -> None:
    build = _build(f"quantizer={quantizer},", "executorch")
    rule_runner.write_files({"quantized/executorch/BUILD": build})
    with pytest.raises(ExecutionError, match=message):
        rule_runner.get_target(Address("quantized/executorch", target_name="x"))


def test_static_ranges_of_a_decoder_end_executorch(rule_runner: RuleRunner) -> None:
    quantizer = '{"type": "PT2EQuantizer", "quantizer": "XNNPACKQuantizer"}'
    build = _build(f"for_generation=True, quantizer={quantizer},", "executorch")
    rule_runner.write_files({"quantized/decoder/BUILD": build})
    with pytest.raises(ExecutionError, match=r"ends executorch 1.3.1's runtime"):
        rule_runner.get_target(Address("quantized/decoder", target_name="x"))


def test_fusions_that_would_be_left_out_are_refused(rule_runner: RuleRunner) -> None:
    rule_runner.write_files(
        {
            "quantized/fused/BUILD": _build(
                'quantizer={"type": "PT2EQuantizer"},', config='"ort_fusions": "cpu"'
            )
        }
    )
    with pytest.raises(ExecutionError, match=r"leaves out config\['ort_fusions'\]"):
        rule_runner.get_target(Address("quantized/fused", target_name="x"))


def test_a_quantizer_inside_the_config_is_pointed_to_the_field(rule_runner: RuleRunner) -> None:
    rule_runner.write_files(
        {"quantized/inside/BUILD": _build("", config=f'"quantizer": {_DYNAMIC}')}
    )
    with pytest.raises(ExecutionError, match=r"Write it as the target's own field"):
        rule_runner.get_target(Address("quantized/inside", target_name="x"))


@pytest.fixture(scope="module")
def calibrated() -> RuleRunner:
    from pants.core.target_types import FilesGeneratorTarget

    runner = make_rule_runner(
        target_types=[FilesGeneratorTarget],
        queries=[QueryRule(NamedFiles, [NamedFilesRequest])],
    )
    runner.write_files(
        {
            "calibrated/BUILD": _build(
                'quantizer={"type": "OnnxRuntimeQuantizer"},\n'
                '    calibration={"files": [":texts", ":pictures"]},'
            )
            + 'files(name="texts", sources=["*.jsonl", "*.JSONL"])\n'
            + 'files(name="pictures", sources=["*.PNG", "*.wav"])\n'
            + 'file(name="notes", source="notes.txt")\n',
            "calibrated/b.jsonl": '{"text": "b"}\n',
            "calibrated/a.jsonl": '{"text": "a"}\n',
            "calibrated/c.JSONL": "",
            "calibrated/notes.txt": "",
            "calibrated/cat.PNG": "",
            "calibrated/a.wav": "",
        }
    )
    return runner


def test_files_are_dependencies_at_their_paths(calibrated: RuleRunner) -> None:
    target = calibrated.get_target(Address("calibrated", target_name="x"))
    found = calibrated.request(Targets, [DependenciesRequest(target[Dependencies])])
    assert {item.address.target_name for item in found} == {"ckpt", "texts", "pictures"}
    calibration = target[CalibrationField].value
    files = calibrated.request(NamedFiles, [calibration_files(calibration, target.address)])
    assert files.paths == tuple(
        f"calibrated/{name}" for name in ("a.jsonl", "a.wav", "b.jsonl", "c.JSONL", "cat.PNG")
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            ":notes",
            r"calibration\['files'\]` hold calibrated/notes.txt. Name files that end in .jsonl",
        ),
        (":ckpt", r"name calibrated:ckpt, a `local_checkpoint` target. Name a `file`"),
        (":absent", r"the `calibration\['files'\]` field of calibrated:x"),
    ],
)
def test_other_targets_are_refused(calibrated: RuleRunner, name: str, message: str) -> None:
    request = calibration_files({"files": [name]}, Address("calibrated", target_name="x"))
    with pytest.raises(ExecutionError, match=message):
        calibrated.request(NamedFiles, [request])
