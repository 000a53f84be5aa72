"""Speech and translation: generation from raw inputs against eager `generate`, on ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import GenerationMixin, PreTrainedModel

from exporter.backends.tiny_models import export, make_spec, tiny_bart, tiny_whisper
from model_export.manifest import MANIFEST_FILE, CheckpointRecord, Manifest
from model_export.runtime import InputError, Model, load
from model_export.spec import ExportSpec

STEPS = 10
# Traced with one token in the cache, which is what a prompt of one leaves, `decode` takes no more.
SPEC = make_spec("onnx", {"dynamic": True}, for_generation=True, multi_token_decode=True)


def _load(model: PreTrainedModel, inputs: dict[str, torch.Tensor], folder: Path) -> Model:
    """`model` as an artifact that was traced with `inputs`, in its runtime."""
    records = export(model, dict(inputs), SPEC, folder)
    manifest = Manifest(
        SPEC.export_format,
        CheckpointRecord("random", "tiny", ()),
        _plain(SPEC),
        {},
        {},
        tuple(records.values()),
        (),
    )
    (folder / MANIFEST_FILE).write_text(manifest.to_json())
    model.config.to_json_file(folder / "config.json")
    model.generation_config.to_json_file(folder / "generation_config.json")
    return load(folder)


def _talkative(model: PreTrainedModel) -> PreTrainedModel:
    """With larger weights: as they are initialised, a tiny model repeats one token."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.mul_(8)
    return model


def _plain(spec: ExportSpec) -> dict[str, Any]:
    return {"for_generation": True, "generation_config": dict(spec.generation_config)}


def _eager(model: PreTrainedModel, inputs: dict[str, torch.Tensor], **options: Any) -> list[Any]:
    """The new tokens of each row, without the start token and what follows the end."""
    eos = model.generation_config.eos_token_id
    with torch.no_grad():
        # Whisper's own `generate` adds prompts and timestamps.
        rows = GenerationMixin.generate(
            model, **inputs, max_new_tokens=STEPS, do_sample=False, num_beams=1, **options
        )
    said = [row[1:].tolist() for row in rows]
    return [row[: row.index(eos) + 1] if eos in row else row for row in said]


def _bart_inputs(batch: int, length: int) -> dict[str, torch.Tensor]:
    """Padded on the right, the second row shorter."""
    generator = torch.Generator().manual_seed(length)
    ids = torch.randint(5, 200, (batch, length), generator=generator)
    mask = torch.ones_like(ids)
    mask[1:, length - 3 :] = 0
    ids[mask == 0] = 1
    return {"input_ids": ids, "attention_mask": mask}


@pytest.fixture(scope="module")
def bart(tmp_path_factory: pytest.TempPathFactory) -> tuple[PreTrainedModel, Model]:
    model = _talkative(tiny_bart())
    return model, _load(model, _bart_inputs(2, 8), tmp_path_factory.mktemp("bart"))


def test_a_text_model_takes_ids(bart: tuple[PreTrainedModel, Model]) -> None:
    eager, model = bart
    for batch, length in [(2, 8), (3, 13), (1, 5)]:
        inputs = _bart_inputs(batch, length)
        expected = _eager(eager, inputs)
        assert len(set(expected[0])) > 1
        arrays = {name: tensor.numpy() for name, tensor in inputs.items()}
        said = model.generate(**arrays, max_new_tokens=STEPS)
        assert [list(completion.tokens) for completion in said] == expected
        # The same as prompts, which are padded here.
        rows = [
            ids[mask == 1].tolist()
            for ids, mask in zip(arrays["input_ids"], arrays["attention_mask"], strict=True)
        ]
        assert model.generate(rows, max_new_tokens=STEPS) == said


def test_a_forced_first_token(bart: tuple[PreTrainedModel, Model]) -> None:
    """BART checkpoints force one after the start token."""
    eager, model = bart
    inputs = _bart_inputs(1, 6)
    expected = _eager(eager, inputs, forced_bos_token_id=77)
    assert expected[0][0] == 77
    (model.artifact.folder / "generation_config.json").write_text(
        eager.generation_config.to_json_string().replace("{", '{"forced_bos_token_id": 77,', 1)
    )
    (said,) = load(model.artifact.folder).generate(
        inputs["input_ids"].tolist(), max_new_tokens=STEPS
    )
    assert list(said.tokens) == expected[0]


def test_inputs_that_do_not_fit(bart: tuple[PreTrainedModel, Model]) -> None:
    _, model = bart
    with pytest.raises(InputError, match="Give prompts, or the encoder's inputs"):
        model.generate()
    with pytest.raises(InputError, match=r"`decoder_input_ids` is \[1\]: give it as \[1, tokens\]"):
        model.generate([[5, 6]], decoder_input_ids=[2])


def test_speech_takes_features(tmp_path: Path) -> None:
    eager = _talkative(tiny_whisper())
    generator = torch.Generator().manual_seed(0)
    features = {"input_features": torch.randn(2, 16, 100, generator=generator)}
    model = _load(eager, features, tmp_path)
    expected = _eager(eager, features)
    said = model.generate(**{name: each.numpy() for name, each in features.items()},
                          max_new_tokens=STEPS)  # fmt: skip
    assert [list(completion.tokens) for completion in said] == expected
    # As lists, and with the start of the transcript given.
    begin = [[3, expected[0][0], expected[0][1]]]
    (rest,) = model.generate(
        input_features=features["input_features"][:1].tolist(),
        decoder_input_ids=begin,
        max_new_tokens=STEPS - 2,
    )
    assert list(rest.tokens) == expected[0][2:]
    hidden = model.forward("encoder", input_features=features["input_features"].numpy())
    assert hidden["last_hidden_state"].shape == (2, 50, 32)
    assert hidden["last_hidden_state"].dtype == np.float32
