"""Recipes: what one may say, what is refused with which words, and that a BUILD file wins."""

from __future__ import annotations

import json
from typing import Any, Dict, List, Mapping, Tuple

import pytest

from model_export.plugin.field_errors import SpecError
from model_export.plugin.recipes import MAX_RECIPE_BYTES, Recipe, find_recipe, merge
from model_export.plugin.spec_settings import spec_of
from model_export.recipe import RECIPE_FILE, recipe_of, recipe_text
from model_export.spec import ExportSpec

ONNX: Dict[str, Any] = {"export_format": "onnx", "dynamic": True}
DECODER: Dict[str, Any] = {
    "config": {"export_format": "openvino", "dynamic": True},
    "for_generation": True,
    "generation_config": {"cache_implementation": "static", "max_cache_len": 64},
    "multi_token_decode": True,
    "components": ["decode"],
    "dtype": "float16",
}
SHAPED: Dict[str, Any] = {
    "config": {
        "export_format": "onnx",
        "dynamic_shapes": {
            "input_ids": {"0": "batch", "1": "seq"},
            "past": [[{"0": "AUTO"}, None]],
        },
        "opset_version": 21,
    },
    "dims": {"seq": [1, 4096]},
    "sample_inputs": {
        "text": ["Hello", "Hi there"],
        "x": {"shape": [2, 8], "dtype": "int64", "range": [0, 100]},
        "y": {"values": [[1.5]], "dtype": "float32"},
    },
    "architecture": "BertModel",
}


def _file(settings: Mapping[str, Any], version: object = 1) -> bytes:
    return json.dumps({"schema_version": version, **settings}).encode()


def _recipe(settings: Mapping[str, Any]) -> Recipe:
    recipe = find_recipe({RECIPE_FILE: _file(settings)})
    assert recipe is not None
    return recipe


EXPORTS: List[Mapping[str, Any]] = [
    {"config": ONNX},
    {"config": {"export_format": "dynamo"}},
    {"config": {"export_format": "executorch", "dynamic": True, "backend": "xnnpack"}},
    {"config": {"export_format": "openvino", "stateful": True}},
    DECODER,
    SHAPED,
    {"config": ONNX, "for_generation": True},
    {
        "config": ONNX,
        "for_generation": True,
        "component_config": {"decode": {"dynamic_shapes": {"input_ids": {"0": "rows"}}}},
        "dims": {"rows": [1, 8]},
    },
    {
        "config": ONNX,
        "quantizer": {
            "type": "OnnxRuntimeQuantizer",
            "config": "OnnxRuntimeDynamicConfig",
            "per_channel": True,
        },
    },
]


@pytest.mark.parametrize("settings", EXPORTS)
def test_an_artifacts_recipe_gives_its_spec_again(settings: Mapping[str, Any]) -> None:
    """The file that every artifact carries, read as one that a checkpoint carries."""
    spec = spec_of(settings)
    again = find_recipe({RECIPE_FILE: recipe_text(spec).encode()})
    assert again is not None
    assert again.spec == spec
    assert merge(again, {}).spec == spec
    assert recipe_text(again.spec) == recipe_text(spec)
    # An owner's file may say less; what it leaves open has the same defaults as in a BUILD file.
    assert _recipe(settings).spec == spec


def test_a_recipe_writes_its_defaults_out() -> None:
    assert recipe_of(spec_of({"config": ONNX, "dims": {}})) == {
        "schema_version": 1,
        "config": {
            "export_format": "onnx",
            "dynamic": True,
            "dynamic_shapes": None,
            "export_params": True,
            "external_data": True,
            "keep_initializers_as_inputs": False,
            "opset_version": None,
            "optimize": True,
            "ort_fusions": None,
            "prefer_deferred_runtime_asserts_over_guards": False,
            "strict": False,
        },
        "dtype": "float32",
        "for_generation": False,
    }


def test_where_a_recipe_is() -> None:
    assert find_recipe({}) is None
    assert find_recipe({"config.json": b'{"model_type": "bert"}'}) is None
    config = json.dumps({"export_config": json.loads(_file({"config": ONNX}))}).encode()
    inside = find_recipe({"config.json": config})
    assert inside is not None and inside.file == "config.json: export_config"
    both = find_recipe({"config.json": config, RECIPE_FILE: _file(DECODER)})
    assert both is not None and both.spec.export_format == "openvino"


WRONG: List[Tuple[str, bytes, str]] = [
    ("empty", b"", "`export_config.json` is no JSON: "),
    ("no json", b"config:", "`export_config.json` is no JSON: "),
    ("no text", b"\xff\xfe{", "`export_config.json` isn't UTF-8 text. Save it as UTF-8."),
    ("list", b"[]", "`export_config.json` is [], and no object. Write {"),
    ("null", b"null", "`export_config.json` is None, and no object. Write {"),
    (
        "no version",
        b'{"config": {}}',
        '`export_config.json: schema_version` is missing. Add "schema_version": 1; the settings',
    ),
    (
        "later version",
        _file({}, 2),
        "`export_config.json: schema_version` is 2, and this model-export reads 1. Use the",
    ),
    ("version true", _file({}, True), "`export_config.json: schema_version` is True, and"),
    ("version text", _file({}, "1"), "`export_config.json: schema_version` is '1', and"),
    (
        "no config",
        _file({}),
        "`export_config.json: config` is missing. Write config=",
    ),
    (
        "no format",
        _file({"config": {"dynamic": True}}),
        "`export_config.json: config` has no 'export_format'. Add one of 'dynamo'",
    ),
    (
        "unknown setting",
        _file({"config": ONNX, "for_generaton": True}),
        "`export_config.json: for_generaton` is no setting of a recipe. Did you mean "
        "'for_generation'? Known: ",
    ),
    (
        "the engine's flat form",
        _file({"export_format": "onnx"}),
        "`export_config.json: export_format` is no setting of a recipe. Did you mean 'config'?",
    ),
    (
        "not for a recipe",
        _file({"config": ONNX, "skip_verify": True}),
        "`export_config.json: skip_verify` is no setting of a recipe. Known: ",
    ),
    (
        "code",
        _file({"config": ONNX, "inputs_from": ":inputs.py"}),
        "`export_config.json: inputs_from` is code, which a recipe can't hold. Write it in the",
    ),
    (
        "unknown key",
        _file({"config": {**ONNX, "opset": 18}}),
        "`export_config.json: config['opset']` is no key of onnx's config. Did you mean "
        "'opset_version'?",
    ),
    (
        "a key of another format",
        _file({"config": {**ONNX, "stateful": True}}),
        "`export_config.json: config['stateful']` belongs to openvino, not to onnx. Remove it",
    ),
    (
        "config a list",
        _file({"config": ["onnx"]}),
        "`export_config.json: config` must be a dict",
    ),
    ("config null", _file({"config": None}), "`export_config.json: config` is null. Remove it."),
    (
        "dtype",
        _file({"config": ONNX, "dtype": "fp16"}),
        "`export_config.json: dtype` is 'fp16', which no export has. Did you mean 'float16'?",
    ),
    (
        "dtype a number",
        _file({"config": ONNX, "dtype": 16}),
        "`export_config.json: dtype` must be a string, not 16. Quote it.",
    ),
    (
        "flag a number",
        _file({"config": ONNX, "for_generation": 1}),
        "`export_config.json: for_generation` must be true or false, not 1. Write true.",
    ),
    (
        "architecture",
        _file({"config": ONNX, "architecture": "os.system('x')"}),
        "`export_config.json: architecture` is \"os.system('x')\", which is no class name. Write",
    ),
    (
        "components",
        _file({"config": ONNX, "for_generation": True, "components": ["decoder"]}),
        "`export_config.json: components` has 'decoder', which is no component. Did you mean",
    ),
    (
        "only for generation",
        _file({"config": ONNX, "multi_token_decode": True}),
        "`export_config.json: multi_token_decode` only has a meaning with for_generation=True.",
    ),
    (
        "dims",
        _file({**SHAPED, "dims": {"seq": [4096, 1]}}),
        "`export_config.json: dims['seq']` is [4096, 1]. Write (min, max) with 0 <= min < max.",
    ),
    (
        "dims of nothing",
        _file({"config": ONNX, "dims": {"seq": [1, 2]}}),
        "`export_config.json: dims['seq']` bounds a dimension that config['dynamic_shapes']",
    ),
    (
        "samples",
        _file({"config": ONNX, "sample_inputs": {"text": "Hello"}}),
        "`export_config.json: sample_inputs['text']` must be a list of texts. Write",
    ),
    (
        "cache",
        _file({**DECODER, "generation_config": {"cache_implementation": "static"}}),
        "`export_config.json: generation_config['cache_implementation']` is 'static' without",
    ),
    (
        "a key twice",
        b'{"schema_version": 1, "config": {}, "config": {}}',
        "`export_config.json: 'config'` is there twice. Remove one of them.",
    ),
    ("not a number", b'{"schema_version": NaN}', "`export_config.json` has NaN, which is no"),
    (
        "a million digits",
        b'{"schema_version": ' + b"9" * 1_000_000 + b"}",
        "`export_config.json` has the number '9999",
    ),
    ("deep", b"[" * 200_000, "`export_config.json` is nested too deep. Write a recipe."),
    (
        "deep inside",
        _file(
            {"config": ONNX, "for_generation": True, "generation_config": {"eos_token_id": 1}}
        ).replace(b": 1}}", b": " + b"[" * 200 + b"]" * 200 + b"}}"),
        "`export_config.json` is nested deeper than 16. Write a recipe.",
    ),
    (
        "too long",
        b" " * (MAX_RECIPE_BYTES + 1),
        f"`export_config.json` has {MAX_RECIPE_BYTES + 1} bytes. A recipe has at most",
    ),
    (
        "terminal",
        _file({"config": ONNX, "\x1b[31m\u202e": 1}),
        "`export_config.json: '\\x1b[31m\\u202e'` is no setting of a recipe. Known: ",
    ),
    (
        "endless name",
        _file({"config": {**ONNX, "x" * 500_000: 1}}),
        "`export_config.json: config['xxxx",
    ),
]


@pytest.mark.parametrize(
    ("content", "message"), [item[1:] for item in WRONG], ids=[item[0] for item in WRONG]
)
def test_refuses_a_recipe(content: bytes, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        find_recipe({RECIPE_FILE: content})
    said = str(caught.value)
    assert said.startswith(message)
    assert "\n" not in said and said.isprintable() and len(said) < 1500


def _merged(settings: Mapping[str, Any], given: Mapping[str, Any]) -> ExportSpec:
    return merge(_recipe(settings), given).spec


def test_a_build_file_wins() -> None:
    merged = merge(
        _recipe(SHAPED),
        {
            "config": {"opset_version": 20, "optimize": False},
            "dtype": "float16",
            "architecture": "BertModel",
        },
    )
    assert merged.spec == spec_of(
        {
            **SHAPED,
            "config": {**SHAPED["config"], "opset_version": 20, "optimize": False},
            "dtype": "float16",
        }
    )
    # Where both say the same, nothing is overridden.
    assert merged.overridden == {
        "config": {"opset_version": 20, "optimize": False},
        "dtype": "float16",
    }


def test_generation_settings_are_merged_by_key() -> None:
    spec = _merged(DECODER, {"generation_config": {"max_cache_len": 128, "eos_token_id": 2}})
    assert spec.generation_config == {
        "cache_implementation": "static",
        "eos_token_id": 2,
        "max_cache_len": 128,
    }


def test_code_of_the_target_replaces_sample_inputs() -> None:
    spec = _merged(SHAPED, {"inputs_from": ":inputs.py"})
    assert (spec.inputs_from, spec.sample_inputs) == (":inputs.py", None)


def test_what_loses_its_meaning_is_left_out() -> None:
    assert _merged(DECODER, {"for_generation": False}) == spec_of(
        {"config": DECODER["config"], "dtype": "float16", "for_generation": False}
    )
    growing = _merged(DECODER, {"generation_config": {"cache_implementation": "dynamic"}})
    assert growing.generation_config == {"cache_implementation": "dynamic"}
    other = _merged(SHAPED, {"config": {"export_format": "openvino"}})
    assert "opset_version" not in other.config
    assert other.config["dynamic_shapes"] == SHAPED["config"]["dynamic_shapes"]
    assert _merged(SHAPED, {"config": {"dynamic_shapes": None}}).dims == {}
    # The default of OpenVINO's `stateful` follows the cache that comes of both.
    assert _merged(DECODER, {}).config["stateful"] is False
    assert growing.config["stateful"] is True


def test_the_config_of_components_is_merged_by_key() -> None:
    parts: Dict[str, Any] = {
        "config": ONNX,
        "for_generation": True,
        "component_config": {
            "prefill": {"opset_version": 19, "optimize": False},
            "decode": {"dynamic_shapes": {"input_ids": {"0": "rows"}}},
        },
        "dims": {"rows": [1, 8]},
    }
    merged = merge(_recipe(parts), {"component_config": {"prefill": {"opset_version": 21}}})
    assert merged.spec.component_config["prefill"] == {"opset_version": 21, "optimize": False}
    assert merged.spec.dims == {"rows": (1, 8)}
    # What another format, or another choice of components, has no use for is left out.
    other = _merged(parts, {"config": {"export_format": "openvino"}})
    assert list(other.component_config) == ["decode"]
    fewer = _merged(parts, {"components": ("prefill",)})
    assert (list(fewer.component_config), fewer.dims) == (["prefill"], {})
    assert _merged(parts, {"for_generation": False}).component_config == {}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"config": {"opset_version": 20}}, r"config\['opset_version'\]` belongs to onnx, not to"),
        ({"dims": {"seq": (1, 2)}}, r"`dims\['seq'\]` bounds a dimension"),
        (
            {"for_generation": False, "components": ("decode",)},
            "`components` only has a meaning with for_generation=True",
        ),
    ],
)
def test_what_does_not_go_together(given: Mapping[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        _merged(DECODER, given)
