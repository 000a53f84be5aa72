"""What an export process does from its request to the manifest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from transformers import BertConfig, BertModel
from transformers.exporters.utils import decompose_for_generation

from exporter.backends.tiny_multimodal import llava_inputs, tiny_llava
from model_export.exporter import components
from model_export.exporter.pipeline import run_export
from model_export.manifest import Manifest, record_files
from model_export.plugin.spec_settings import spec_of
from model_export.spec import ADAPTER_FOLDER, CheckpointOrigin, ExportRequest, Toolchain

SPEC = spec_of({"config": {"export_format": "dynamo", "dynamic": True}})
ORIGIN = CheckpointOrigin("local", "tiny")
LORA = CheckpointOrigin("local", "tiny/lora")
IDS = {
    "input_ids": torch.tensor([[2, 5, 3, 4]]),
    "attention_mask": torch.ones(1, 4, dtype=torch.int64),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where an export process runs, with `checkpoint/` in it."""
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    config = BertConfig(
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        vocab_size=8,
    )
    BertModel(config).save_pretrained(tmp_path / "checkpoint")
    return tmp_path


def _adapt(folder: Path, seed: int) -> Any:
    """Write an adapter where the export looks for it; returns peft's unmerged model."""
    torch.manual_seed(seed)
    base = BertModel.from_pretrained(folder / "checkpoint")
    config = peft.LoraConfig(r=2, target_modules=["query", "value"], init_lora_weights=False)
    wrapped: Any = peft.get_peft_model(base, config)
    wrapped.save_pretrained(folder / ADAPTER_FOLDER)
    return wrapped.eval()


def _export(folder: Path, name: str, adapter: CheckpointOrigin | None) -> Manifest:
    request = ExportRequest(SPEC, ORIGIN, Toolchain("dynamo", "0" * 64), adapter)
    return run_export(request, folder / "checkpoint", folder / name, folder / f"probe-{name}")


def _computed(artifact: Path) -> torch.Tensor:
    program = torch.export.load(artifact / "model.pt2").module()
    result: torch.Tensor = program(**IDS)["last_hidden_state"]
    return result


def test_an_artifact_with_an_adapter(folder: Path) -> None:
    expected = _adapt(folder, 1)(**IDS).last_hidden_state
    manifest = _export(folder, "adapted", LORA)

    torch.testing.assert_close(_computed(folder / "adapted"), expected, atol=2e-6, rtol=0)
    assert manifest.adapter is not None
    assert manifest.adapter.identity == "tiny/lora"
    assert manifest.adapter.files == record_files(folder / ADAPTER_FOLDER)
    assert manifest.engine["peft"] == peft.__version__
    assert Manifest.from_json(manifest.to_json()) == Manifest.from_json(
        (folder / "adapted/manifest.json").read_text()
    )

    _adapt(folder, 2)
    other = _export(folder, "other", LORA)
    assert _file(manifest, "model.pt2") != _file(other, "model.pt2")
    plain = _export(folder, "plain", None)
    assert "peft" not in plain.engine
    assert "adapter" not in json.loads(plain.to_json())
    assert (_computed(folder / "plain") - expected).abs().max() > 1e-3


def _file(manifest: Manifest, path: str) -> str:
    return next(file.sha256 for file in manifest.files if file.path == path)


def test_attention_that_no_graph_has(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain = _export(folder, "plain", None)
    document = json.loads((folder / "checkpoint/config.json").read_text())
    document["attn_implementation"] = "flex_attention"
    (folder / "checkpoint/config.json").write_text(json.dumps(document))
    manifest = _export(folder, "flex", None)

    assert _file(manifest, "model.pt2") == _file(plain, "model.pt2")
    assert plain.replaced_attention == {}
    assert manifest.replaced_attention == {"": "flex_attention"}
    assert "config.json asks for flex_attention: exported with the def" in capsys.readouterr().err


def test_the_sample_inputs_are_captured_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The components, the probe and the merge rule share what one `generate` shows of a model."""
    inputs = llava_inputs()
    tiny_llava().save_pretrained(folder / "llava")
    captured = []

    def count(model: Any, given: dict[str, Any], **settings: Any) -> Any:
        captured.append(given["input_ids"].tolist())
        return decompose_for_generation(model, given, **settings)

    monkeypatch.setattr(components, "decompose_for_generation", count)
    spec = spec_of(
        {
            "config": {"export_format": "dynamo", "dynamic": True},
            "for_generation": True,
            "components": ["embed_tokens"],
            "sample_inputs": {
                name: {"values": tensor.tolist(), "dtype": str(tensor.dtype).split(".")[1]}
                for name, tensor in inputs.items()
            },
        }
    )
    request = ExportRequest(spec, ORIGIN, Toolchain("dynamo", "0" * 64), None)
    manifest = run_export(request, folder / "llava", folder / "artifact", folder / "probe")
    assert captured.count(inputs["input_ids"].tolist()) == 1
    assert manifest.multimodal is not None and manifest.multimodal.media
