"""A tiny Qwen3 with drawn weights, as the files of a repository; written without torch.

Python 3.9, because the plugin's tests serve it too.
"""

from __future__ import annotations

import array
import json
import random
import struct
from collections.abc import Mapping
from dataclasses import dataclass

CONFIG: Mapping[str, object] = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "dtype": "float32",
    "vocab_size": 128,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 256,
    "tie_word_embeddings": True,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
_HIDDEN, _INNER, _VOCABULARY, _HEAD, _QUERIES, _KEYS = 32, 48, 128, 8, 32, 16


@dataclass(frozen=True)
class Weight:
    """A float32 tensor, row by row."""

    shape: tuple[int, ...]
    values: array.array[float]

    def to_bytes(self) -> bytes:
        """Its values, little-endian."""
        values = array.array("f", self.values)
        if struct.pack("=f", 1.0) != struct.pack("<f", 1.0):
            values.byteswap()
        return values.tobytes()


def tiny_weights() -> dict[str, Weight]:
    """Every tensor, by the names that Qwen3ForCausalLM saves."""
    return {name: Weight(shape, _drawn(name, shape)) for name, shape in _shapes().items()}


def _shapes() -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (_VOCABULARY, _HIDDEN),
        "model.norm.weight": (_HIDDEN,),
    }
    for layer in range(2):
        parts = {
            "input_layernorm": (_HIDDEN,),
            "post_attention_layernorm": (_HIDDEN,),
            "mlp.down_proj": (_HIDDEN, _INNER),
            "mlp.gate_proj": (_INNER, _HIDDEN),
            "mlp.up_proj": (_INNER, _HIDDEN),
            "self_attn.k_norm": (_HEAD,),
            "self_attn.k_proj": (_KEYS, _HIDDEN),
            "self_attn.o_proj": (_HIDDEN, _QUERIES),
            "self_attn.q_norm": (_HEAD,),
            "self_attn.q_proj": (_QUERIES, _HIDDEN),
            "self_attn.v_proj": (_KEYS, _HIDDEN),
        }
        for name, shape in parts.items():
            shapes[f"model.layers.{layer}.{name}.weight"] = shape
    return shapes


def tiny_qwen3(note: str = "", shards: int = 1) -> dict[str, bytes]:
    """config.json and weights; in `shards` files with an index where that is more than one.

    `note` goes into config.json: with one of its own a test asks for bytes that no cache has.
    """
    weights = tiny_weights()
    names = sorted(weights)
    files = {"config.json": json.dumps({**CONFIG, "note": note}, indent=2).encode()}
    places: dict[str, str] = {}
    for number in range(shards):
        part = names[number::shards]
        file = f"model-{number + 1:05}-of-{shards:05}.safetensors"
        file = file if shards > 1 else "model.safetensors"
        files[file] = safetensors({name: weights[name] for name in part})
        places.update(dict.fromkeys(part, file))
    if shards > 1:
        size = sum(4 * len(weight.values) for weight in weights.values())
        index = {"metadata": {"total_size": size}, "weight_map": places}
        files["model.safetensors.index.json"] = json.dumps(index, indent=2).encode()
    return files


def _count(shape: tuple[int, ...]) -> int:
    return shape[0] * (shape[1] if len(shape) > 1 else 1)


def safetensors(weights: Mapping[str, Weight]) -> bytes:
    """The file with these tensors."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, weight in sorted(weights.items()):
        values = weight.to_bytes()
        header[name] = {
            "dtype": "F32",
            "shape": list(weight.shape),
            "data_offsets": [len(data), len(data) + len(values)],
        }
        data += values
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def _drawn(name: str, shape: tuple[int, ...]) -> array.array[float]:
    """About 1 in norms, normal with a deviation of 0.3 elsewhere."""
    draw = random.Random(name)
    mean, deviation = (1.0, 0.1) if len(shape) == 1 else (0.0, 0.3)
    return array.array("f", (draw.gauss(mean, deviation) for _ in range(_count(shape))))
