from __future__ import annotations

import hashlib
import json
import math
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file

from model_export.checkpoints import random_weights
from model_export.checkpoints.exact_initialization import exact_initialization
from model_export.exporter.errors import ExportError

_SMALL = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 64,
}
_CONFIGS: dict[str, dict[str, Any]] = {
    "Qwen3ForCausalLM": {
        **_SMALL,
        "model_type": "qwen3",
        "num_key_value_heads": 2,
        "head_dim": 8,
        "tie_word_embeddings": True,
    },
    "LlamaForCausalLM": {**_SMALL, "model_type": "llama", "dtype": "bfloat16"},
    "Qwen3MoeForCausalLM": {
        **_SMALL,
        "model_type": "qwen3_moe",
        "head_dim": 8,
        "num_key_value_heads": 2,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 16,
    },
    "BertModel": {**_SMALL, "model_type": "bert"},
    # trunc_normal_
    "ViTForImageClassification": {
        **_SMALL,
        "model_type": "vit",
        "image_size": 16,
        "patch_size": 4,
    },
    "T5ForConditionalGeneration": {
        "model_type": "t5",
        "d_model": 32,
        "d_kv": 8,
        "d_ff": 48,
        "num_layers": 2,
        "num_heads": 4,
        "vocab_size": 64,
    },
    # Sinusoids: exp, sin and cos.
    "WhisperForConditionalGeneration": {
        "model_type": "whisper",
        "d_model": 32,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
        "encoder_ffn_dim": 32,
        "decoder_ffn_dim": 32,
        "vocab_size": 64,
        "num_mel_bins": 8,
        "max_source_positions": 16,
        "max_target_positions": 16,
        "pad_token_id": 0,
        "decoder_start_token_id": 1,
        "bos_token_id": 1,
        "eos_token_id": 2,
    },
    # Random time steps through exp, log and expm1; Kaiming fills.
    "MambaForCausalLM": {
        "model_type": "mamba",
        "vocab_size": 64,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "state_size": 8,
    },
    # A parameter that only the constructor sets.
    "CLIPModel": {
        "model_type": "clip",
        "text_config": {**_SMALL, "bos_token_id": 1, "eos_token_id": 2},
        "vision_config": {**_SMALL, "image_size": 16, "patch_size": 4},
    },
}


def _config(folder: Path, architecture: str, **changes: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    document = {**_CONFIGS[architecture], "architectures": [architecture], **changes}
    (folder / "config.json").write_text(json.dumps(document))
    return folder


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("made")
    for name in _CONFIGS:
        random_weights.generate(_config(root / "configs" / name, name), 7, root / name)
    return root


def _digests(root: Path) -> dict[str, str]:
    return {
        name: hashlib.sha256((root / name / "model.safetensors").read_bytes()).hexdigest()
        for name in _CONFIGS
    }


_ALL = """
import sys
from pathlib import Path
from model_export.checkpoints.random_weights import generate
import torch
torch.set_num_threads(int(sys.argv[3]))
for config in sorted(Path(sys.argv[1]).iterdir(), reverse=True):
    generate(config, 7, Path(sys.argv[2]) / config.name)
print(torch.backends.cpu.get_cpu_capability())
"""


@pytest.mark.parametrize(("level", "threads"), [("default", "1"), ("avx2", "3")])
def test_same_bytes_at_each_cpu_level(made: Path, tmp_path: Path, level: str, threads: str) -> None:
    """Beside the machine's own level, at which `made` was made, in another order and process."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(os.path.abspath(path) for path in sys.path),
        "ATEN_CPU_CAPABILITY": level,
        "PYTHONHASHSEED": threads,
    }
    done = subprocess.run(
        [sys.executable, "-c", _ALL, str(made / "configs"), str(tmp_path), threads],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )

    used = done.stdout.split()[-1]
    if used != level.upper():
        pytest.skip(f"this machine has no {level}: it ran at {used}")
    assert _digests(tmp_path) == _digests(made)


# sha256 of the weights below; a change means that every random_checkpoint gets other weights.
_QWEN3_SHA256 = "d6ccea03f89b0da1e04b051b180f261ece2503a531f23efc1b414f426a2e8d72"


def test_published_digest(made: Path) -> None:
    """The file's bytes by an independent way: numpy alone, Irwin-Hall from the raw draws."""
    config = _CONFIGS["Qwen3ForCausalLM"]
    hidden, inner, head = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    heads, groups = config["num_attention_heads"], config["num_key_value_heads"]
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (config["vocab_size"], hidden)
    }
    shapes["model.norm.weight"] = (hidden,)
    for layer in range(config["num_hidden_layers"]):
        for name, shape in {
            "input_layernorm": (hidden,),
            "post_attention_layernorm": (hidden,),
            "self_attn.q_norm": (head,),
            "self_attn.k_norm": (head,),
            "self_attn.q_proj": (heads * head, hidden),
            "self_attn.k_proj": (groups * head, hidden),
            "self_attn.v_proj": (groups * head, hidden),
            "self_attn.o_proj": (hidden, heads * head),
            "mlp.gate_proj": (inner, hidden),
            "mlp.up_proj": (inner, hidden),
            "mlp.down_proj": (hidden, inner),
        }.items():
            shapes[f"model.layers.{layer}.{name}.weight"] = shape
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name in sorted(shapes):
        count = math.prod(shapes[name])
        if len(shapes[name]) == 1:
            values = np.ones(count, "<f4")
        else:
            key = int.from_bytes(hashlib.sha256(f"7:{name}".encode()).digest()[:16], "little")
            draws = np.random.Philox(key=key).random_raw(count).astype("<u8").view("<u2")
            sums = draws.reshape(count, 4).astype(np.int32).sum(axis=1) - 2 * 65535
            values = sums.astype("<f4") * np.float32(0.02 / math.sqrt((2**32 - 1) / 3))
        offsets = [len(data), len(data) + 4 * count]
        header[name] = {"dtype": "F32", "shape": list(shapes[name]), "data_offsets": offsets}
        data += values.tobytes()
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    expected = hashlib.sha256(struct.pack("<Q", len(text)) + text + data).hexdigest()

    assert _digests(made)["Qwen3ForCausalLM"] == expected == _QWEN3_SHA256


@pytest.mark.parametrize("name", _CONFIGS)
def test_the_engine_takes_every_tensor(made: Path, name: str) -> None:
    model, found = getattr(transformers, name).from_pretrained(
        made / name, dtype="auto", output_loading_info=True
    )

    assert not set().union(*(found[kind] for kind in found))
    for parameter_name, parameter in model.named_parameters():
        assert torch.isfinite(parameter).all(), parameter_name


def test_initialisation_is_the_engines_own(made: Path, tmp_path: Path) -> None:
    config = _config(
        tmp_path / "config", "BertModel", initializer_range=0.5, hidden_size=256, vocab_size=1000
    )
    random_weights.generate(config, 0, tmp_path / "out")
    tensors = load_file(tmp_path / "out/model.safetensors")

    embeddings = tensors["embeddings.word_embeddings.weight"]
    assert abs(embeddings.std().item() - 0.5) < 0.01
    assert abs(embeddings.mean().item()) < 0.01
    assert (tensors["embeddings.LayerNorm.weight"] == 1).all()
    assert (tensors["pooler.dense.bias"] == 0).all()
    clip = load_file(made / "CLIPModel/model.safetensors")
    assert clip["logit_scale"].item() == pytest.approx(2.6592)
    mamba = load_file(made / "MambaForCausalLM/model.safetensors")
    steps = torch.nn.functional.softplus(mamba["backbone.layers.0.mixer.dt_proj.bias"])
    assert 0.0009 < steps.min() < steps.max() < 0.11


def test_ties_and_dtype(made: Path) -> None:
    tied = load_file(made / "Qwen3ForCausalLM/model.safetensors")
    assert "lm_head.weight" not in tied
    llama = load_file(made / "LlamaForCausalLM/model.safetensors")
    assert {tensor.dtype for tensor in llama.values()} == {torch.bfloat16}


def test_other_files_come_along(tmp_path: Path) -> None:
    source = _config(tmp_path / "config", "Qwen3ForCausalLM")
    (source / "vocab.txt").write_text("a\nb\n")
    (source / "generation_config.json").write_text('{"eos_token_id": 5}')
    random_weights.generate(source, 7, tmp_path / "out")

    for path in source.iterdir():
        assert (tmp_path / "out" / path.name).read_bytes() == path.read_bytes()


def _refusal(source: Path, tmp_path: Path) -> str:
    with pytest.raises(ExportError) as caught:
        random_weights.generate(source, 0, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    return str(caught.value)


def test_no_config(tmp_path: Path) -> None:
    assert _refusal(tmp_path, tmp_path) == "`config.json` is missing. Add the model's config.json."


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architectures": None}, "`config.json: architectures` is missing."),
        ({"architectures": ["NoSuchModel"]}, "names NoSuchModel, which transformers"),
        ({"architectures": ["BertTokenizer"]}, "names BertTokenizer, which transformers"),
        ({"hidden_size": "wide"}, "`config.json` is refused by Qwen3ForCausalLM"),
        ({"quantization_config": {"quant_method": "awq"}}, "can't be combined with random"),
    ],
)
def test_bad_config(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    source = _config(tmp_path / "config", "Qwen3ForCausalLM", **changes)

    assert message in _refusal(source, tmp_path)


def test_orthogonal_matrices_are_refused(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config/config.json").write_text(
        json.dumps(
            {
                "architectures": ["RwkvForCausalLM"],
                "model_type": "rwkv",
                "vocab_size": 64,
                "hidden_size": 32,
                "num_hidden_layers": 1,
            }
        )
    )

    assert "makes orthogonal matrices" in _refusal(tmp_path / "config", tmp_path)


def test_weights_beside_the_config(tmp_path: Path) -> None:
    source = _config(tmp_path / "config", "BertModel")
    (source / "model.safetensors").write_bytes(b"")

    assert "lies beside a config that asks for random weights" in _refusal(source, tmp_path)


def test_command_line(tmp_path: Path) -> None:
    _config(tmp_path / "config", "BertModel", architectures=[])
    done = subprocess.run(
        [sys.executable, "-m", random_weights.__name__, "config", "1", "out"],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(os.path.abspath(path) for path in sys.path),
        },
        capture_output=True,
        text=True,
    )

    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("`config.json: architectures` is missing.")


def test_parts_of_a_tensor_get_numbers_of_their_own() -> None:
    whole = torch.empty(3, 4)
    with exact_initialization(0, {whole.untyped_storage().data_ptr(): "experts"}):
        for part in whole:
            part.normal_()

    assert whole.unique().numel() == 12
