"""Which graphs a model that sees is cut into, and what is found out about putting them together."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from transformers import PreTrainedModel
from transformers.exporters import DynamoConfig, DynamoExporter
from transformers.exporters.utils import decompose_for_generation

from exporter.backends.tiny_models import generation_spec, make_spec
from exporter.backends.tiny_multimodal import (
    IMAGE,
    llava_inputs,
    qwen2_audio_inputs,
    qwen2_vl_inputs,
    tiny_llava,
    tiny_qwen2_audio,
    tiny_qwen2_vl,
)
from model_export.exporter.components import Component, build_components
from model_export.exporter.errors import ExportError
from model_export.exporter.merge_rule import find_merge_rule
from model_export.exporter.probe import record_probe
from model_export.manifest import MediaRecord, MultimodalRecord

SPEC = generation_spec("dynamo", {})
CASES = [(tiny_llava, llava_inputs), (tiny_qwen2_vl, qwen2_vl_inputs)]


def _components(model: PreTrainedModel, inputs: dict[str, Any]) -> dict[str, Component]:
    return {part.name: part for part in build_components(model, inputs, SPEC)}


@pytest.mark.parametrize(("make_model", "make_inputs"), CASES)
def test_upstream_still_leaves_the_encoder_out(
    make_model: Callable[[], PreTrainedModel], make_inputs: Callable[[], dict[str, Any]]
) -> None:
    """Remove `media_in_forward` once this fails."""
    stages = decompose_for_generation(make_model(), make_inputs())
    assert "image_encoder" not in stages


def test_the_graphs_of_a_model_with_a_projector() -> None:
    parts = _components(tiny_llava(), llava_inputs())
    assert list(parts) == [
        "image_encoder",
        "multi_modal_projector",
        "embed_tokens",
        "language_model",
        "lm_head",
        "decode",
    ]
    assert "pixel_values" not in parts["decode"].inputs


def test_an_encoder_takes_what_follows_from_the_grid_and_not_the_grid() -> None:
    parts = _components(tiny_qwen2_vl(), qwen2_vl_inputs())
    assert list(parts) == ["image_encoder", "embed_tokens", "language_model", "lm_head", "decode"]
    encoder = parts["image_encoder"]
    assert list(encoder.inputs) == ["hidden_states", "position_ids", "cu_seqlens"]
    assert encoder.inputs["cu_seqlens"].tolist() == [0, 16, 32]
    assert {"image_grid_thw", "mm_token_type_ids"}.isdisjoint(parts["decode"].inputs)


def test_capturing_leaves_the_class_as_it_was() -> None:
    model = tiny_llava()
    _components(model, llava_inputs())
    assert "_supports_mm_encoder_outputs" not in vars(type(model))
    assert model._supports_mm_encoder_outputs()


def test_the_rule_of_a_model_with_a_projector() -> None:
    model, inputs = tiny_llava(), llava_inputs()
    # config.vision_feature_layer is -2 of the embeddings and two layers, without the class token.
    assert find_merge_rule(model, inputs, SPEC) == MultimodalRecord(
        (
            MediaRecord(
                "image_encoder",
                IMAGE,
                {"pixel_values": "pixel_values"},
                "hidden_states.1",
                1,
                "multi_modal_projector",
            ),
        )
    )


def test_the_rule_of_a_model_with_grids() -> None:
    model, inputs = tiny_qwen2_vl(), qwen2_vl_inputs()
    names = {"pixel_values": "hidden_states", "image_grid_thw": "grid_thw"}
    assert find_merge_rule(model, inputs, SPEC) == MultimodalRecord(
        (MediaRecord("image_encoder", IMAGE, names, "pooler_output", 0, None),),
        grid_merge=2,
        position_planes=4,
    )


def test_text_alone_needs_no_encoder() -> None:
    model = tiny_qwen2_vl()
    ids = torch.tensor([[5, 6, 7, 8, 9, 10], [0, 0, 11, 12, 13, 14]])
    inputs = {"input_ids": ids, "attention_mask": (ids > 0).long()}
    parts = build_components(model, dict(inputs), SPEC)
    assert [part.name for part in parts] == ["embed_tokens", "language_model", "lm_head", "decode"]
    assert find_merge_rule(model, inputs, SPEC) == MultimodalRecord((), 2, 4)


def test_a_component_that_the_model_does_not_have() -> None:
    spec = generation_spec("dynamo", {}, components=("audio_encoder",))
    with pytest.raises(ExportError, match="names 'audio_encoder', which LlavaFor"):
        build_components(tiny_llava(), llava_inputs(), spec)


PLAIN = make_spec("dynamo", {"dynamic": True})


def test_images_of_grids_need_an_export_for_generation() -> None:
    model, inputs = tiny_qwen2_vl(), qwen2_vl_inputs()
    with pytest.raises(
        ExportError, match="`for_generation` isn't set, and the forward pass of Qwen2"
    ):
        build_components(model, inputs, PLAIN)
    text = {name: inputs[name] for name in ("input_ids", "attention_mask")}
    assert [part.name for part in build_components(model, text, PLAIN)] == ["model"]


def test_upstream_still_cannot_trace_a_grid() -> None:
    """If this fails, `check_plain` can go."""
    with pytest.raises(GuardOnDataDependentSymNode):
        DynamoExporter().export_program(
            tiny_qwen2_vl(), dict(qwen2_vl_inputs()), DynamoConfig(dynamic=True)
        )


def test_an_output_for_each_image_is_refused(tmp_path: Path) -> None:
    """If this fails, LLaVA's images come out in one tensor: say so in docs/multimodal.md."""
    model, inputs = tiny_llava(), llava_inputs()
    multimodal = find_merge_rule(model, inputs, PLAIN)
    message = (
        r"`config\['dynamic'\]` lets sizes change, and which outputs `model` has changes with them "
        r"\(`image_outputs.pooler_output.1` at batch 1, length \+5\)"
    )
    with pytest.raises(ExportError, match=message):
        record_probe(model, None, inputs, PLAIN, tmp_path, multimodal)
    fixed = make_spec("dynamo", {})
    assert len(record_probe(model, None, inputs, fixed, tmp_path, multimodal).graphs) == 2


def test_the_mask_of_a_sound_is_refused() -> None:
    model, inputs = tiny_qwen2_audio(), qwen2_audio_inputs()
    assert "audio_encoder" in _components(model, dict(inputs))
    message = r"`sample_inputs\['feature_attention_mask'\]` goes with images or sound, and no graph"
    with pytest.raises(ExportError, match=message):
        find_merge_rule(model, inputs, SPEC)
    text = {"input_ids": inputs["input_ids"] % 240, "attention_mask": inputs["attention_mask"]}
    assert find_merge_rule(model, text, SPEC) == MultimodalRecord((), None, None)
