"""What `component_config` may say, and with which field its mistakes are named."""

from __future__ import annotations

from typing import Any, Dict, Mapping

import pytest

from model_export.plugin.field_errors import SpecError
from model_export.plugin.spec_settings import spec_of
from model_export.spec import CheckpointOrigin, ExportRequest, ExportSpec, Toolchain

ONNX: Dict[str, Any] = {"export_format": "onnx", "dynamic": True}


def _spec(parts: Mapping[str, Any], **settings: Any) -> ExportSpec:
    return spec_of(
        {"config": ONNX, "for_generation": True, "component_config": parts, **settings},
    )


def test_each_component_has_the_config_with_its_own_keys() -> None:
    spec = _spec({"prefill": {"opset_version": 19, "optimize": False}, "decode": {}})
    assert spec.component_config == {
        "decode": {},
        "prefill": {"opset_version": 19, "optimize": False},
    }
    assert spec.for_component("prefill").config == {
        **spec.config,
        "opset_version": 19,
        "optimize": False,
    }
    assert spec.for_component("decode").config == spec.config
    # What one component is built with says nothing of the others.
    assert spec.for_component("prefill").component_config == {}


def test_it_survives_the_request() -> None:
    spec = _spec({"decode": {"dynamic_shapes": {"input_ids": {0: "rows"}}}}, dims={"rows": (1, 4)})
    request = ExportRequest(spec, CheckpointOrigin("local", "x"), Toolchain("onnx", "0"))
    assert ExportRequest.from_json(request.to_json()).spec == spec
    assert spec.component_config["decode"]["dynamic_shapes"] == {"input_ids": {"0": "rows"}}


def test_one_dynamic_component_makes_an_export_dynamic() -> None:
    static = spec_of({"config": {"export_format": "onnx"}, "for_generation": True})
    assert not static.is_dynamic
    mixed = spec_of(
        {
            "config": {"export_format": "onnx"},
            "for_generation": True,
            "component_config": {"decode": {"dynamic": True}},
        }
    )
    assert mixed.is_dynamic
    assert not mixed.for_component("prefill").is_dynamic


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"decode": {"stateful": True}}, "['stateful']` belongs to openvino, not to onnx."),
        ({"decode": {"opset_version": 17}}, "['opset_version']` is 17, which the engine"),
        ({"decode": {"strict": True}}, "['strict']` is True, which the engine can't do"),
        (
            {"decode": {"ort_fusions": "cpu", "optimize": False}},
            "['ort_fusions']` needs optimize=True.",
        ),
        (
            {"decode": {"dynamic_shapes": {"input_ids": {"x": "rows"}}}},
            "['dynamic_shapes']['input_ids']['x']` is not an axis number.",
        ),
        ({"decode": ["dynamic"]}, "` must be a dict of keys of `config`, not list. Write a dict."),
        (
            {"decode": {"quantizer": None}},
            "['quantizer']` takes an object of the engine, which a BUILD file can't hold. "
            'Write `quantizer={"decode": {"type": ...}}`',
        ),
    ],
)
def test_a_mistake_is_named_by_its_component(parts: Mapping[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as caught:
        _spec(parts)
    assert str(caught.value).startswith(f"`component_config['decode']{message}")


def test_bounds_of_dimensions_that_one_component_names_are_used() -> None:
    shapes = {"dynamic_shapes": {"input_ids": {0: "rows"}}}
    assert _spec({"decode": shapes}, dims={"rows": (1, 4)}).dims == {"rows": (1, 4)}
    with pytest.raises(SpecError, match=r"`dims\['columns'\]` bounds a dimension"):
        _spec({"decode": shapes}, dims={"columns": (1, 4)})


@pytest.mark.parametrize(
    ("quantizer", "parts", "message"),
    [
        (
            {"type": "OnnxRuntimeQuantizer"},
            {"prefill": {"export_params": False}},
            "`component_config['prefill']['export_params']` is False",
        ),
        (
            {"prefill": {"type": "PT2EQuantizer", "quantizer": "X86InductorQuantizer"}},
            {"prefill": {"ort_fusions": "cpu"}},
            "`quantizer['prefill']['type']` is 'PT2EQuantizer', after which the engine leaves out "
            "component_config['prefill']['ort_fusions']",
        ),
    ],
)
def test_a_quantizer_and_the_config_of_its_component(
    quantizer: Mapping[str, Any], parts: Mapping[str, Any], message: str
) -> None:
    with pytest.raises(SpecError) as caught:
        _spec(parts, quantizer=quantizer)
    assert str(caught.value).startswith(message)
    # Another component may have it: what is quantized is decode alone.
    one = quantizer if "type" in quantizer else quantizer["prefill"]
    assert _spec(parts, quantizer={"decode": one}).component_config == parts


OWN: Dict[str, Any] = {"config": ONNX, "inputs_from": "models/inputs.py"}


@pytest.mark.parametrize("for_generation", [False, True])
def test_the_target_s_own_file_may_name_components_as_it_likes(for_generation: bool) -> None:
    spec = spec_of(
        {
            **OWN,
            "for_generation": for_generation,
            "components": ("head", "decode"),
            "component_config": {"head": {"optimize": False}},
            "quantizer": {"head": {"type": "OnnxRuntimeQuantizer"}},
        }
    )
    assert spec.components == ("head", "decode")
    assert spec.for_component("head").config["optimize"] is False
    assert list(spec.quantizer or {}) == ["head"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"components": ("my head",)},
            "`components` has 'my head', which is no component. Write small letters, digits and",
        ),
        (
            {"component_config": {"My": {}}},
            "`component_config['My']` is no component. Write small letters",
        ),
        (
            {"quantizer": {"My": {"type": "OnnxRuntimeQuantizer"}}},
            "`quantizer['My']` is neither 'type' nor a component. Write small letters",
        ),
        (
            {"components": ("head",), "component_config": {"decode": {}}},
            "`component_config['decode']` is of a component that `components` leaves out",
        ),
        (
            {"components": ("head",), "quantizer": {"decode": {"type": "OnnxRuntimeQuantizer"}}},
            "`quantizer['decode']` is no component of this export. It builds head",
        ),
    ],
)
def test_what_no_file_can_name_is_refused(settings: Mapping[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as caught:
        spec_of({**OWN, **settings})
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    "settings",
    [
        {"components": ("head",)},
        {"component_config": {"head": {}}},
        {"quantizer": {"head": {"type": "OnnxRuntimeQuantizer"}}},
    ],
)
def test_without_a_file_the_names_are_the_engine_s(settings: Mapping[str, Any]) -> None:
    with pytest.raises(SpecError, match="component"):
        spec_of({"config": ONNX, "for_generation": True, **settings})
