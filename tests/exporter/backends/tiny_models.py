"""Tiny models with random weights, their inputs, and an export of them into a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    BertConfig,
    BertModel,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    PreTrainedModel,
    Qwen3Config,
    Qwen3ForCausalLM,
    ViTConfig,
    ViTForImageClassification,
    WhisperConfig,
    WhisperForConditionalGeneration,
)

from model_export.exporter.backend import load_backend
from model_export.exporter.components import build_components
from model_export.manifest import ComponentRecord
from model_export.spec import ExportSpec

LAYERS, KV_HEADS, HEAD_DIM = 2, 2, 16
VOCABULARY = 256

_SEQ2SEQ: dict[str, Any] = {
    "d_model": 32,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "vocab_size": VOCABULARY,
    "pad_token_id": 0,
}

# Every key with its default, as the plugin hands them over.
_TRACE_KEYS = {
    "dynamic": False,
    "strict": False,
    "dynamic_shapes": None,
    "prefer_deferred_runtime_asserts_over_guards": False,
}
_DEFAULTS: dict[str, dict[str, Any]] = {
    "dynamo": _TRACE_KEYS,
    "executorch": {
        **_TRACE_KEYS,
        "backend": "xnnpack",
        "alloc_graph_input": True,
        "alloc_graph_output": True,
        "alloc_mutable_buffers": True,
    },
    "onnx": {
        **_TRACE_KEYS,
        "opset_version": None,
        "optimize": True,
        "ort_fusions": None,
        "external_data": True,
        "export_params": True,
        "keep_initializers_as_inputs": False,
    },
    "openvino": {**_TRACE_KEYS, "compress_to_fp16": False, "stateful": True},
}


def tiny_qwen3() -> Qwen3ForCausalLM:
    """A decoder with grouped key/value heads and tied embeddings; float32, same every time."""
    torch.manual_seed(0)
    config = Qwen3Config(
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=KV_HEADS,
        head_dim=HEAD_DIM,
        vocab_size=VOCABULARY,
        tie_word_embeddings=True,
        max_position_embeddings=256,
    )
    model = Qwen3ForCausalLM(config).eval()
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0
    return model


def tiny_bert() -> BertModel:
    """An encoder of one layer; float32, same every time."""
    torch.manual_seed(0)
    config = BertConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        vocab_size=VOCABULARY,
        max_position_embeddings=64,
    )
    return BertModel(config).eval()


def tiny_gemma3() -> Gemma3ForCausalLM:
    """A decoder whose first layer sees eight positions back, and whose second sees all."""
    torch.manual_seed(0)
    config = Gemma3TextConfig(
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=KV_HEADS,
        head_dim=HEAD_DIM,
        vocab_size=VOCABULARY,
        max_position_embeddings=256,
        sliding_window=8,
        layer_types=["sliding_attention", "full_attention"],
        pad_token_id=0,
    )
    model = Gemma3ForCausalLM(config).eval()
    model.generation_config.eos_token_id = None
    return model


def tiny_bart() -> BartForConditionalGeneration:
    """An encoder-decoder of one layer each; float32, same every time."""
    torch.manual_seed(0)
    config = BartConfig(
        **_SEQ2SEQ,
        max_position_embeddings=64,
        forced_eos_token_id=None,
    )
    model = BartForConditionalGeneration(config).eval()
    model.generation_config.eos_token_id = None
    return model


def tiny_whisper() -> WhisperForConditionalGeneration:
    """One that hears a second in a hundred steps; a layer each, float32, same every time."""
    torch.manual_seed(0)
    config = WhisperConfig(
        **_SEQ2SEQ,
        num_mel_bins=16,
        max_source_positions=50,
        max_target_positions=64,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=3,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    return WhisperForConditionalGeneration(config).eval()


def tiny_vit() -> ViTForImageClassification:
    """One that sees four patches of 8 x 8; a layer, float32, same every time."""
    torch.manual_seed(0)
    config = ViTConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        image_size=16,
        patch_size=8,
    )
    return ViTForImageClassification(config).eval()


def left_padded(batch: int, sequence: int, padding: int, seed: int = 0) -> dict[str, torch.Tensor]:
    """Token ids and mask (batch, sequence), all but the first row padded on the left."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(1, VOCABULARY, (batch, sequence), generator=generator)
    mask = torch.ones_like(ids)
    mask[1:, :padding] = 0
    ids[1:, :padding] = 0
    return {"input_ids": ids, "attention_mask": mask}


def positions_of(mask: torch.Tensor) -> torch.Tensor:
    """What `generate` passes as `position_ids` for a padded prompt."""
    return (mask.long().cumsum(-1) - 1).masked_fill(mask == 0, 0)


def make_spec(export_format: str, config: dict[str, Any], **fields: Any) -> ExportSpec:
    """A spec as the plugin would hand it over: `config` with every default written out."""
    assert config.keys() <= _DEFAULTS[export_format].keys()
    return ExportSpec(export_format, {**_DEFAULTS[export_format], **config}, **fields)


def generation_spec(export_format: str, config: dict[str, Any], **fields: Any) -> ExportSpec:
    """Dynamic, for generation, with a decode graph that takes several tokens."""
    return make_spec(
        export_format,
        {"dynamic": True, **config},
        **{"for_generation": True, "multi_token_decode": True, **fields},
    )


def export(
    model: PreTrainedModel, inputs: dict[str, Any], spec: ExportSpec, directory: Path
) -> dict[str, ComponentRecord]:
    """Export `model` as `spec` says into `directory`; the records by component."""
    backend = load_backend(spec.export_format)
    backend.check(spec)
    programs = {
        component.name: backend.export(
            component.name, component.module, component.inputs, spec.for_component(component.name)
        )
        for component in build_components(model, inputs, spec)
    }
    directory.mkdir(parents=True, exist_ok=True)
    return {record.name: record for record in backend.save(programs, directory, spec)}


def greedy(model: PreTrainedModel, inputs: dict[str, torch.Tensor], steps: int) -> torch.Tensor:
    """The tokens (batch, steps) that eager greedy generation adds."""
    with torch.no_grad():
        tokens = model.generate(**inputs, max_new_tokens=steps, do_sample=False)
    return tokens[:, inputs["input_ids"].shape[1] :]
