"""What a decode loop reads from a record."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from model_export.manifest import ComponentRecord, TensorRecord
from model_export.runtime.decoder import open_decoder
from model_export.runtime.decoders.cache_tensors import CacheKind
from model_export.runtime.decoders.limits import steps_of
from model_export.runtime.decoders.model_config import ModelConfig, read_model_config
from model_export.runtime.decoders.signature import read_signature
from model_export.runtime.errors import ArtifactError, InputError
from runtime.decoders.records import manifest_of

STATIC = {"cache_implementation": "static", "max_cache_len": 32}


def _decode(
    *inputs: TensorRecord,
    tokens: TensorRecord | None = None,
    outputs: tuple[TensorRecord, ...] = (),
    bounds: dict[str, tuple[int, int]] | None = None,
    vocabulary: int = 7,
) -> ComponentRecord:
    tokens = tokens or TensorRecord("input_ids", "int64", ("batch", "sequence"))
    logits = TensorRecord("logits", "float32", ("batch", "sequence", vocabulary))
    return ComponentRecord("decode", "", (), (tokens, *inputs), (logits, *outputs), bounds or {})


def _cache(name: str, *shape: int | str, side: str = "input.") -> TensorRecord:
    return TensorRecord(f"{side}cache.{name}", "float32", shape)


def test_kinds_of_cache_tensors() -> None:
    record = _decode(
        _cache("layers.0.keys", "batch", 2, "past", 16),
        _cache("layers.1.keys", "batch", 2, 32, 16),
        TensorRecord("input.cache.layers.1.cumulative_length", "int64", ()),
        _cache("layers.2.conv_states.0", "batch", 64, 4),
        _cache("cross_attention_cache.layers.0.keys", "batch", 2, "encoder", 16),
        outputs=(_cache("layers.0.keys", "batch", 2, "past + sequence", 16, side="output."),),
    )
    signature = read_signature(record, manifest_of(record), ModelConfig())
    assert [tensor.kind for tensor in signature.cache] == [
        CacheKind.GROWING,
        CacheKind.STATIC,
        CacheKind.SCALAR,
        CacheKind.STATE,
        CacheKind.CROSS,
    ]
    assert [tensor.name for tensor in signature.cache][:2] == [
        "cache.layers.0.keys",
        "cache.layers.1.keys",
    ]
    assert (signature.limit, signature.padded) == (32, False)


def test_limits_follow_the_bounds() -> None:
    record = _decode(
        TensorRecord("attention_mask", "int64", ("batch", "total")),
        _cache("layers.0.keys", "batch", 2, "past", 16),
        outputs=(_cache("layers.0.keys", "batch", 2, "past + sequence", 16, side="output."),),
        bounds={"batch": (0, 4), "sequence": (0, 16), "total": (0, 100), "past": (0, 90)},
    )
    signature = read_signature(record, manifest_of(record), ModelConfig())
    assert signature.batch_limit == 4
    assert signature.limit == 90
    assert list(steps_of(signature, 1, 0, 40)) == [(0, 16), (16, 32), (32, 40)]


def test_prompts_are_cut_where_logits_would_take_too_much() -> None:
    # 2^18 float32 logits a token are 1 MiB, and 64 MiB are allowed.
    record = _decode(vocabulary=1 << 18)
    signature = read_signature(record, manifest_of(record), ModelConfig())
    assert list(steps_of(signature, 1, 0, 130)) == [(0, 64), (64, 128), (128, 130)]
    # Never cut into less than 32 tokens.
    assert list(steps_of(signature, 8, 0, 33)) == [(0, 32), (32, 33)]


def test_a_fixed_number_of_tokens_must_go_into_the_prompt() -> None:
    record = _decode(tokens=TensorRecord("input_ids", "int64", ("batch", 2)))
    signature = read_signature(record, manifest_of(record), ModelConfig())
    assert list(steps_of(signature, 1, 0, 4)) == [(0, 2), (2, 4)]
    with pytest.raises(InputError, match="exported for 2 tokens at a time"):
        list(steps_of(signature, 1, 0, 3))


@pytest.mark.parametrize(("multi", "at_once"), [(True, None), (False, 1)])
def test_unnamed_tokens_are_one_unless_several_were_traced(
    multi: bool, at_once: int | None
) -> None:
    record = _decode(tokens=TensorRecord("input_ids", "int64", ("?", "?")))
    signature = read_signature(record, manifest_of(record, multi_token_decode=multi), ModelConfig())
    assert signature.tokens_at_once == at_once


def test_open_sizes_come_from_a_component_or_the_config_that_has_them() -> None:
    record = _decode(_cache("layers.0.conv_states.0", "batch", 64, "axis_2"))
    prefill = ComponentRecord(
        "prefill", "", (), (), (_cache("layers.0.conv_states.0", "batch", 64, 4, side=""),)
    )
    (tensor,) = read_signature(record, manifest_of(record, prefill), ModelConfig()).cache
    assert tensor.sizes == (64, 4)
    (tensor,) = read_signature(record, manifest_of(record), ModelConfig(conv_kernel=3)).cache
    assert tensor.sizes == (64, 3)
    with pytest.raises(ArtifactError, match="its size at axis 2: export it with that axis static"):
        read_signature(record, manifest_of(record), ModelConfig())


def test_an_open_static_length_is_the_specs() -> None:
    record = _decode(
        _cache("layers.0.keys", "batch", 2, "length", 16),
        TensorRecord("input.cache.layers.0.cumulative_length", "int64", ()),
    )
    manifest = manifest_of(record, generation_config=STATIC)
    signature = read_signature(record, manifest, ModelConfig())
    assert signature.limit == 32
    assert signature.cache[0].sizes == (2, 32, 16)
    # OpenVINO's records of dynamic=True leave all open.
    record = replace(
        record, inputs=(record.inputs[0], _cache("layers.0.keys", *"????"), record.inputs[2])
    )
    manifest = manifest_of(record, generation_config=STATIC)
    signature = read_signature(record, manifest, ModelConfig(heads=4, head_dim=8))
    assert signature.cache[0].sizes == (4, 32, 8)


def test_a_static_cache_as_openvinos_state_is_refused() -> None:
    record = _decode()
    before = _cache("layers.0.keys", "?", 2, 32, 16)
    after = _cache("layers.0.keys", "?", 2, 32, 16, side="output.")
    with pytest.raises(ArtifactError, match="stateful=False"):
        read_signature(
            record,
            manifest_of(record, generation_config=STATIC),
            ModelConfig(),
            [(before, after)],
        )


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (TensorRecord("pixel_values", "float32", ("batch", 3)), "takes `pixel_values`, which"),
        (
            TensorRecord("attention_mask.chunked_attention", "bool", ("batch", 1, "sequence", 8)),
            "full and of sliding attention only",
        ),
        (
            TensorRecord("attention_mask", "float32", ("batch", 1, "sequence", 8)),
            "as float32 of 4 axes",
        ),
    ],
)
def test_inputs_that_nothing_fills_are_named(tensor: TensorRecord, message: str) -> None:
    record = _decode(tensor)
    with pytest.raises(ArtifactError, match=message):
        read_signature(record, manifest_of(record), ModelConfig())


def test_an_artifact_without_decode_is_no_decoder(tmp_path: Path) -> None:
    record = ComponentRecord("model", "model.onnx", (), (), ())
    with pytest.raises(ArtifactError, match="has model and no `decode`"):
        open_decoder(tmp_path, manifest_of(record))


@pytest.mark.parametrize(
    ("text", "config"),
    [
        ('{"sliding_window": 512}', ModelConfig(window=512)),
        ('{"sliding_window": 512, "use_sliding_window": false}', ModelConfig()),
        ('{"text_config": {"sliding_window": 8}}', ModelConfig(window=8)),
        ('{"conv_kernel": 4}', ModelConfig(conv_kernel=4)),
        (
            '{"num_attention_heads": 8, "num_key_value_heads": 2, "hidden_size": 64}',
            ModelConfig(heads=2, head_dim=8),
        ),
        (
            '{"num_attention_heads": 8, "head_dim": 16, "hidden_size": 64}',
            ModelConfig(heads=8, head_dim=16),
        ),
        ("{}", ModelConfig()),
    ],
)
def test_sizes_of_a_config(tmp_path: Path, text: str, config: ModelConfig) -> None:
    assert read_model_config(tmp_path) == ModelConfig()
    (tmp_path / "config.json").write_text(text, encoding="utf-8")
    assert read_model_config(tmp_path) == config
