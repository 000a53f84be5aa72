"""A checkpoint whose model is Python of its own: run where it is trusted, refused elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers.exporters.exporter_dynamo import register_cache_pytrees_for_model

from exporter.backends.tiny_models import make_spec, tiny_qwen3
from exporter.backends.two_builds import build_twice
from model_export.exporter.checkpoint import open_checkpoint
from model_export.exporter.errors import ExportError
from model_export.spec import CheckpointOrigin

LOCAL = CheckpointOrigin("hub", "acme/scaled@0")
TRUSTED = CheckpointOrigin("hub", "acme/scaled@0", trust_remote_code=True)
SCALE = 3
CONFIGURATION = """\
from transformers import Qwen3Config


class ScaledConfig(Qwen3Config):
    model_type = "scaled_qwen3"
"""
# The logits are linear in what comes out of the last norm.
MODELING = f"""\
from transformers import Qwen3ForCausalLM

from .configuration_scaled import ScaledConfig


class ScaledNorm(type(Qwen3ForCausalLM(ScaledConfig(
    vocab_size=8, hidden_size=8, num_hidden_layers=1, num_attention_heads=1,
    num_key_value_heads=1, head_dim=8, intermediate_size=8,
)).model.norm)):
    def forward(self, hidden_states):
        return super().forward(hidden_states) * {SCALE}


class ScaledForCausalLM(Qwen3ForCausalLM):
    config_class = ScaledConfig

    def __init__(self, config):
        super().__init__(config)
        self.model.norm = ScaledNorm(config.hidden_size, config.rms_norm_eps)
        self.post_init()
"""
AUTO_MAP = {
    "AutoConfig": "configuration_scaled.ScaledConfig",
    "AutoModelForCausalLM": "modeling_scaled.ScaledForCausalLM",
}


def _files(**changes: Any) -> dict[str, str]:
    """A checkpoint's own code, and the config.json that asks for it."""
    config = {
        **json.loads(tiny_qwen3().config.to_json_string(use_diff=False)),
        "architectures": ["ScaledForCausalLM"],
        "model_type": "scaled_qwen3",
        "auto_map": AUTO_MAP,
        **changes,
    }
    return {
        "config.json": json.dumps(config),
        "configuration_scaled.py": CONFIGURATION,
        "modeling_scaled.py": MODELING,
    }


def test_trusted_code_is_what_is_exported(tmp_path: Path) -> None:
    """With the same bytes wherever it is built; the copies of the code are in no artifact."""
    base = tiny_qwen3()
    spec = make_spec("dynamo", {"dynamic": True})
    one, another = build_twice(base, spec, tmp_path, TRUSTED, _files())
    assert one == another
    assert not any(file.path.endswith(".py") for file in one)
    manifest = json.loads((tmp_path / "one/out/manifest.copy.json").read_text(encoding="utf-8"))
    read = {file["path"] for file in manifest["checkpoint"]["files"]}
    assert {"modeling_scaled.py", "configuration_scaled.py"} < read
    # The engine's copy is in the process's own HOME, not in the user's.
    assert list((tmp_path / "one/.private/home").rglob("modeling_scaled.py"))
    assert not list((tmp_path / "one/home").rglob("*.py"))

    register_cache_pytrees_for_model(base)
    program = torch.export.load(tmp_path / "one/out/model.pt2").module()
    inputs = {
        "input_ids": torch.arange(33).reshape(3, 11),
        "attention_mask": torch.ones(3, 11, dtype=torch.int64),
    }
    with torch.no_grad():
        expected = SCALE * base(**inputs).logits
    torch.testing.assert_close(program(**inputs).logits, expected)


def _folder(tmp_path: Path, **changes: Any) -> Path:
    folder = tmp_path / "checkpoint"
    tiny_qwen3().save_pretrained(folder)
    for name, text in _files(**changes).items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(autouse=True)
def _own_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "hf"))


def test_untrusted_code_does_not_run(tmp_path: Path) -> None:
    folder = _folder(tmp_path)
    (folder / "modeling_scaled.py").write_text("raise SystemExit(7)", encoding="utf-8")
    with pytest.raises(ExportError) as caught:
        open_checkpoint(folder, LOCAL, None)
    assert str(caught.value).startswith(
        "`config.json` names ScaledForCausalLM, which isn't a model class of transformers 5.24.0 "
        "(its own code, in `auto_map`, isn't run). Set"
    )
    assert str(caught.value).endswith("or trust_remote_code=True if you trust that code.")
    assert not (tmp_path / "hf").exists()


@pytest.mark.parametrize(
    ("reference", "code", "message"),
    [
        (
            "other/repo--modeling_scaled.ScaledForCausalLM",
            MODELING,
            "`config.json: auto_map` names code of another repository, 'other/repo', which no lock",
        ),
        (
            "../../modeling_scaled.ScaledForCausalLM",
            MODELING,
            "`config.json: auto_map` has '../../modeling_scaled.ScaledForCausalLM', which is no",
        ),
        (
            "modeling_absent.ScaledForCausalLM",
            MODELING,
            "`modeling_absent.py` can't be run (OSError: ",
        ),
        (
            "modeling_scaled.ScaledForCausalLM",
            "import no_such_package",
            "`modeling_scaled.py` can't be run (ImportError: ",
        ),
        (
            "modeling_scaled.ScaledForCausalLM",
            "1 / 0",
            "`modeling_scaled.py` can't be run (ZeroDivisionError: division by zero). Use a",
        ),
    ],
)
def test_code_that_cannot_be_run(tmp_path: Path, reference: str, code: str, message: str) -> None:
    folder = _folder(tmp_path, auto_map={"AutoModelForCausalLM": reference})
    (folder / "modeling_scaled.py").write_text(code, encoding="utf-8")
    with pytest.raises(ExportError) as caught:
        open_checkpoint(folder, TRUSTED, None)
    assert str(caught.value).startswith(message)
