"""Calibration from files: which lines, as what inputs, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from exporter.backends.tiny_models import generation_spec, left_padded, make_spec, tiny_qwen3
from model_export.exporter.checkpoint_folder import Checkpoint
from model_export.exporter.components import build_components
from model_export.exporter.errors import ExportError
from model_export.exporter.quantizers.calibration import calibration_inputs, component_inputs
from model_export.exporter.quantizers.calibration_lines import CalibrationLine, choose_lines
from model_export.exporter.quantizers.plan import plan_quantization, record_calibration
from model_export.manifest import (
    CalibrationRecord,
    CheckpointRecord,
    FileRecord,
    Manifest,
    sha256_of,
)
from model_export.spec import ExportSpec

_WORDS = ["<pad>", *"abcdefghijklmnopqrstuvwxyz", "user", ":"]
# Only looked at where something is seen or heard.
_CHECKPOINT = Checkpoint(Path(), {}, "", False, False, (), ())
_QUANTIZER = {"type": "PT2EQuantizer", "quantizer": "X86InductorQuantizer"}


def _tokenizer(**fields: Any) -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(_WORDS)}, "<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", **fields)


def _calibration(**fields: Any) -> dict[str, Any]:
    return {"files": ["a.jsonl"], "samples": 64, "seed": 0, "max_length": 128, **fields}


def _spec(calibration: Mapping[str, Any], dynamic: bool = True) -> ExportSpec:
    config = {"dynamic": dynamic}
    return make_spec("dynamo", config, quantizer=_QUANTIZER, calibration=calibration)


def _write(folder: Path, *lines: Any) -> None:
    text = "\n".join(json.dumps(line) if not isinstance(line, str) else line for line in lines)
    (folder / "a.jsonl").write_text(text, encoding="utf-8")


def test_a_seeded_subset_in_the_order_drawn(tmp_path: Path) -> None:
    _write(tmp_path, *({"text": str(number)} for number in range(50)))

    def chosen(**fields: Any) -> list[str]:
        lines = choose_lines(_spec(_calibration(**fields)), tmp_path)
        return [line.text for line in lines if line.text is not None]

    # NumPy's PCG64 is the same everywhere: these are its numbers.
    assert chosen(samples=5) == chosen(samples=50)[:5]
    assert chosen(samples=5) != chosen(samples=5, seed=1)
    assert sorted(chosen(samples=80), key=int) == [str(number) for number in range(50)]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{not json", r"no JSON in a.jsonl, line 2"),
        ({"texts": "a"}, r"none of text, messages, .* in a.jsonl, line 2. Write {\"text\""),
        ({"text": ["a"]}, r"a `text` that isn't a text in a.jsonl, line 2"),
        ({"text": "a", "messages": [{}]}, r"`text` and `messages` in a.jsonl, line 2"),
        ('"text"', r"none of text"),
    ],
)
def test_a_wrong_line_is_named(line: Any, message: str, tmp_path: Path) -> None:
    _write(tmp_path, {"text": "a"}, line)
    with pytest.raises(ExportError, match=message):
        choose_lines(_spec(_calibration()), tmp_path)


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    _write(tmp_path, "")
    with pytest.raises(ExportError, match="have no line"):
        choose_lines(_spec(_calibration()), tmp_path)


def _batches(
    lines: list[dict[str, Any]], dynamic: bool = True, **fields: Any
) -> list[dict[str, torch.Tensor]]:
    traced = left_padded(2, 8, 3)
    tokenizer = _tokenizer(**fields.pop("tokenizer", {}))
    spec = _spec(_calibration(**fields), dynamic)
    return list(calibration_inputs(tiny_qwen3(), tokenizer, traced, spec, _lines(*lines)))


def _lines(*lines: Mapping[str, Any]) -> list[CalibrationLine]:
    return [
        CalibrationLine(f"line {number}", line.get("text"), line.get("messages"))
        for number, line in enumerate(lines, start=1)
    ]


def test_batches_of_the_traced_size_filled_up_from_the_start() -> None:
    first, second = _batches([{"text": "a b c"}, {"text": "d"}, {"text": "e f"}])
    assert first["input_ids"].tolist() == [[1, 2, 3], [4, 0, 0]]
    assert first["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]
    assert second["input_ids"].tolist() == [[5, 6, 0], [1, 2, 3]]


def test_max_length_and_a_position_of_padding_at_least() -> None:
    (batch,) = _batches([{"text": "a b c d e"}, {"text": "f g h i j"}], max_length=4)
    assert batch["input_ids"].tolist() == [[1, 2, 3, 4], [6, 7, 8, 0]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 1], [1, 1, 1, 0]]


def test_a_static_export_keeps_the_traced_length() -> None:
    (batch,) = _batches([{"text": "a b"}, {"text": " ".join("abcdefghijklm")}], dynamic=False)
    assert batch["input_ids"].shape == (2, 8)
    assert batch["input_ids"][1].tolist()[:3] == [1, 2, 3]


def test_messages_go_through_the_chat_template() -> None:
    template = "{% for m in messages %}{{ m.role }} : {{ m.content }}{% endfor %}"
    lines = [{"messages": [{"role": "user", "content": "a"}]}] * 2
    (batch,) = _batches(lines, tokenizer={"chat_template": template})
    user, colon = _WORDS.index("user"), _WORDS.index(":")
    assert batch["input_ids"][0].tolist() == [user, colon, 1]


def test_messages_without_a_template_are_refused() -> None:
    with pytest.raises(ExportError, match="no chat template"):
        _batches([{"messages": [{"role": "user", "content": "a"}]}])


def test_text_without_a_tokenizer_is_refused() -> None:
    spec = _spec(_calibration())
    lines = _lines({"text": "a"})
    with pytest.raises(ExportError, match="has no tokenizer"):
        list(calibration_inputs(tiny_qwen3(), None, left_padded(2, 8, 3), spec, lines))


@pytest.mark.parametrize(
    ("generation_config", "cached"),
    [({}, 2), ({"cache_implementation": "static", "max_cache_len": 32}, 0)],
    ids=["growing", "static"],
)
def test_decode_calibrates_on_prompt_and_step(
    generation_config: dict[str, Any], cached: int
) -> None:
    spec = generation_spec("dynamo", {}, quantizer=_QUANTIZER, generation_config=generation_config)
    model, inputs = tiny_qwen3(), left_padded(2, 8, 3)
    found = component_inputs(model, iter([inputs]), spec)
    step, prompt = found["decode"]
    assert step["input_ids"].shape == (2, 2)
    assert prompt["input_ids"].tolist() == inputs["input_ids"][:, cached:].tolist()
    assert int(prompt["cache"].get_seq_length()) == cached
    # It is what the model computes for these positions in one go.
    with torch.no_grad():
        whole = model(
            **inputs, position_ids=found["prefill"][0]["position_ids"], use_cache=False
        ).logits
        rest = model(
            input_ids=prompt["input_ids"],
            attention_mask=prompt["attention_mask"],
            position_ids=prompt["position_ids"],
            cache=prompt["cache"],
        ).logits
    torch.testing.assert_close(rest[0], whole[0, cached:])


def test_plan_and_record(tmp_path: Path) -> None:
    _write(tmp_path, {"text": "a b c d e f"}, {"text": "b c"}, {"text": "c d e f g"})
    spec = generation_spec("dynamo", {}, quantizer=_QUANTIZER, calibration=_calibration())
    model, inputs = tiny_qwen3(), left_padded(2, 8, 3)
    components = build_components(model, dict(inputs), spec)
    plan = plan_quantization(model, _tokenizer(), inputs, components, spec, tmp_path, _CHECKPOINT)
    assert list(plan) == ["decode"]
    # Two batches, each a step and a prompt.
    assert len(plan["decode"].samples) == 4
    record = record_calibration(spec, plan, tmp_path)
    assert record is not None
    assert (record.source, record.batches) == ("files", {"decode": 4})
    (file,) = record.files
    assert (file.path, file.sha256) == ("a.jsonl", sha256_of(tmp_path / "a.jsonl"))


def test_without_files_the_sample_inputs_calibrate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = make_spec("dynamo", {"dynamic": True}, quantizer=_QUANTIZER)
    model, inputs = tiny_qwen3(), left_padded(2, 8, 3)
    components = build_components(model, dict(inputs), spec)
    plan = plan_quantization(model, None, inputs, components, spec, tmp_path, _CHECKPOINT)
    assert "sample inputs alone" in capsys.readouterr().err
    (sample,) = plan["model"].samples
    assert sample["input_ids"].equal(inputs["input_ids"])
    record = record_calibration(spec, plan, tmp_path)
    assert record is not None and record.source == "sample_inputs"


def test_dynamic_quantizers_record_no_calibration(tmp_path: Path) -> None:
    spec = make_spec("dynamo", {"dynamic": True}, quantizer={**_QUANTIZER, "is_dynamic": True})
    model, inputs = tiny_qwen3(), left_padded(2, 8, 3)
    components = build_components(model, dict(inputs), spec)
    plan = plan_quantization(model, None, inputs, components, spec, tmp_path, _CHECKPOINT)
    assert plan["model"].samples == ()
    assert record_calibration(spec, plan, tmp_path) is None


def test_a_component_that_is_not_built_is_refused(tmp_path: Path) -> None:
    spec = generation_spec("dynamo", {}, quantizer={"lm_head": _QUANTIZER})
    model, inputs = tiny_qwen3(), left_padded(2, 8, 3)
    components = build_components(model, dict(inputs), spec)
    with pytest.raises(ExportError, match=r"quantizer\['lm_head'\].*Choose from decode"):
        plan_quantization(model, None, inputs, components, spec, tmp_path, _CHECKPOINT)


def test_the_manifest_keeps_it() -> None:
    record = CalibrationRecord("files", (FileRecord("a.jsonl", 3, "0" * 64),), {"decode": 4})
    checkpoint = CheckpointRecord("local", "tiny", ())
    manifest = Manifest("dynamo", checkpoint, {}, {}, {}, (), (), calibration=record)
    assert Manifest.from_json(manifest.to_json()) == manifest
    without = Manifest("dynamo", checkpoint, {}, {}, {}, (), ())
    assert Manifest.from_json(without.to_json()).calibration is None
