"""A target's own Python file: what it makes is exported and verified, and its faults are named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import DynamicCache

from exporter.backends.tiny_models import generation_spec, make_spec, tiny_bert, tiny_qwen3
from exporter.backends.tiny_multimodal import tiny_qwen2_audio
from model_export.exporter.custom_inputs import custom_inputs
from model_export.exporter.errors import ExportError
from model_export.exporter.pipeline import run_export
from model_export.exporter.probe.variants import Sizes, resized
from model_export.exporter.samples import build_sample_inputs
from model_export.manifest import Manifest, sha256_of
from model_export.probe import Probe, read_probe
from model_export.recipe import RECIPE_FILE
from model_export.spec import CheckpointOrigin, ExportRequest, ExportSpec, Toolchain
from model_export.verifier.verification import verify

SAMPLES = """\
import torch

def sample_inputs(model, tokenizer):
    assert tokenizer is None
    ids = torch.arange(18).reshape(3, 6) % model.config.vocab_size
    mask = torch.ones_like(ids)
    mask[1:, :2] = 0
    return {"input_ids": ids, "attention_mask": mask}
"""

# Skips the prefill and shortens what decode gives; the lm_head is a graph of its own.
COMPONENTS = """\
import torch
from transformers.exporters.utils import decompose_for_generation

class LastLogits(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, **kwargs):
        return {"logits": self.model(**kwargs).logits[:, -1:]}

def components(model, inputs):
    parts = decompose_for_generation(model, inputs, multi_token_decode=True)
    decode, kwargs = parts["decode"]
    hidden = model.get_input_embeddings()(inputs["input_ids"])
    return {"decode": (LastLogits(decode), kwargs), "head": (model.lm_head, {"input": hidden})}
"""


def _file(folder: Path, text: str) -> str:
    path = folder / "own_inputs.py"
    path.write_text(text, encoding="utf-8")
    return str(path)


def _export(folder: Path, spec: ExportSpec, model: Any) -> tuple[Manifest, Probe]:
    model.save_pretrained(folder / "checkpoint")
    request = ExportRequest(
        spec, CheckpointOrigin("local", "tiny"), Toolchain(spec.export_format, "0" * 64)
    )
    manifest = run_export(request, folder / "checkpoint", folder / "artifact", folder / "probe")
    verdict = verify(folder / "artifact", folder / "probe", {})
    assert verdict.failure is None
    return manifest, read_probe(folder / "probe")


def test_its_sample_inputs_are_what_is_traced(tmp_path: Path) -> None:
    path = _file(tmp_path, SAMPLES)
    spec = make_spec("dynamo", {}, inputs_from=path)
    manifest, _ = _export(tmp_path, spec, tiny_bert())
    assert manifest.components[0].inputs[0].shape == (3, 6)
    assert manifest.inputs_file is not None
    assert manifest.inputs_file.sha256 == sha256_of(Path(path))
    assert Manifest.from_json(manifest.to_json()).inputs_file == manifest.inputs_file
    # A recipe can't hold code, and without it would say something else.
    assert not (tmp_path / "artifact" / RECIPE_FILE).exists()


def test_its_sample_inputs_generate(tmp_path: Path) -> None:
    spec = generation_spec("dynamo", {}, inputs_from=_file(tmp_path, SAMPLES))
    _, probe = _export(tmp_path, spec, tiny_qwen3())
    assert [case.component for case in probe.graphs] == ["decode"] * 3
    assert len(probe.generations) == 3


def test_its_components_are_exported_and_compared_at_other_sizes(tmp_path: Path) -> None:
    spec = generation_spec("dynamo", {}, inputs_from=_file(tmp_path, COMPONENTS))
    manifest, probe = _export(tmp_path, spec, tiny_qwen3())
    decode, head = manifest.components
    assert (decode.name, head.name) == ("decode", "head")
    assert [tensor.name for tensor in decode.outputs] == ["logits"]
    assert decode.outputs[0].shape[1] == 1
    assert [tensor.name for tensor in head.inputs] == ["input"]
    assert [case.component for case in probe.graphs].count("head") == 3
    # The eager model's own `generate` says nothing of a decode graph that is another one.
    assert probe.generations == ()


def _head(folder: Path, **fields: Any) -> ExportSpec:
    text = """\
def components(model, inputs):
    embedding = model.get_input_embeddings()
    hidden = embedding(inputs["input_ids"]).detach()
    return {
        "embedding": (embedding, {"input": inputs["input_ids"]}),
        "head": (model.lm_head, {"input": hidden}),
    }
"""
    return make_spec("dynamo", {"dynamic": True}, inputs_from=_file(folder, text), **fields)


def test_its_components_are_chosen_and_configured_by_their_names(tmp_path: Path) -> None:
    spec = _head(tmp_path, components=("head",), component_config={"head": {"dynamic": False}})
    manifest, probe = _export(tmp_path, spec, tiny_qwen3())
    (head,) = manifest.components
    assert (head.name, head.inputs[0].shape[:2]) == ("head", (2, 8))
    assert {case.component for case in probe.graphs} == {"head"}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"components": ("heat",)},
            r"`components` names 'heat', which the function `components` of .*own_inputs.py doesn't"
            r" have. Choose from embedding, head",
        ),
        (
            {"component_config": {"heat": {"dynamic": False}}},
            r"`component_config\['heat'\]` is of no component of this export. It builds embedding,"
            r" head",
        ),
        (
            {"quantizer": {"heat": {"type": "PT2EQuantizer", "quantizer": "X86InductorQuantizer"}}},
            r"`quantizer\['heat'\]` is no component of this export. Choose from embedding, head",
        ),
    ],
)
def test_a_name_that_it_doesn_t_give_is_an_error_before_the_export(
    tmp_path: Path, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(ExportError, match=message):
        _export(tmp_path, _head(tmp_path, **fields), tiny_qwen3())
    assert not (tmp_path / "artifact").exists()
    assert not (tmp_path / "probe").exists()


@pytest.mark.parametrize(
    ("field", "value"), [("components", ("model",)), ("component_config", {"model": {}})]
)
def test_a_plain_export_without_components_of_its_own_has_no_names(
    tmp_path: Path, field: str, value: Any
) -> None:
    spec = make_spec("dynamo", {}, inputs_from=_file(tmp_path, SAMPLES), **{field: value})
    with pytest.raises(ExportError, match=f"`{field}` only has a meaning with for_generation"):
        _export(tmp_path, spec, tiny_bert())


def test_an_encoder_of_sound_is_exported_by_itself(tmp_path: Path) -> None:
    text = """\
import torch

def sample_inputs(model, tokenizer):
    ids = torch.full((2, 14), model.config.audio_token_id)
    ids[:, :4] = 7
    return {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "input_features": torch.arange(640).reshape(2, 8, 40) / 640,
        "feature_attention_mask": torch.ones(2, 40, dtype=torch.int64),
    }

def components(model, inputs):
    features = {"input_features": inputs["input_features"]}
    return {"audio_encoder": (model.model.audio_tower, features)}
"""
    spec = make_spec("dynamo", {"dynamic": True}, inputs_from=_file(tmp_path, text))
    manifest, probe = _export(tmp_path, spec, tiny_qwen2_audio())
    assert [part.name for part in manifest.components] == ["audio_encoder"]
    assert len(probe.graphs) == 3


def test_components_of_the_model_itself_are_compared_in_generations(tmp_path: Path) -> None:
    text = """\
from transformers.exporters.utils import decompose_for_generation

def components(model, inputs):
    parts = decompose_for_generation(model, inputs, multi_token_decode=True)
    ids = inputs["input_ids"]
    return {
        "decode": parts["decode"],
        "embed": (model.get_input_embeddings(), {"input": ids}),
    }
"""
    static = {"cache_implementation": "static", "max_cache_len": 48}
    path = _file(tmp_path, text)
    spec = generation_spec("dynamo", {}, inputs_from=path, generation_config=static)
    _, probe = _export(tmp_path, spec, tiny_qwen3())
    # Its `generate` is set as the target says.
    assert len(probe.generations) == 3
    for case in probe.generations:
        assert set(case.cache_shapes["cache.layers.1.keys"]) == {(2, 48, 16)}


def test_caches_among_the_inputs_get_other_batches(tmp_path: Path) -> None:
    model = tiny_qwen3()
    cache = DynamicCache(config=model.config)
    for layer in range(2):
        cache.update(torch.rand(2, 2, 4, 16), torch.rand(2, 2, 4, 16), layer)
    inputs = {
        "input_ids": torch.ones(2, 3, dtype=torch.int64),
        "attention_mask": torch.ones(2, 7, dtype=torch.int64),
        "cache": cache,
    }
    other = resized(model, inputs, make_spec("dynamo", {"dynamic": True}), Sizes(3, +5))
    assert other["input_ids"].shape == (3, 3)
    assert other["attention_mask"].shape == (3, 7)
    keys = other["cache"].layers[1].keys
    assert keys.shape == (3, 2, 4, 16)
    assert torch.equal(keys[2], cache.layers[1].keys[0])
    assert cache.layers[1].keys.shape[0] == 2
    with torch.no_grad():
        assert model(**other).logits.shape[:2] == (3, 3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\ny = x + 'a'\n", ", line 2: TypeError: unsupported operand"),
        ("def sample_inputs(:\n", ", line 1: SyntaxError: invalid syntax"),
        ("import nothing_like_this\n", ", line 1: ModuleNotFoundError: No module named 'nothing_"),
        ("x = 1\n", " defines neither `sample_inputs` nor `components`. Write"),
        ("def sample_inputs(model, tokenizer):\n    return model.nothing\n", ", line 2: Attribute"),
        (
            "def sample_inputs(model):\n    return {}\n",
            ": TypeError: sample_inputs() takes 1 positional argument but 2 were given",
        ),
        (
            "def sample_inputs(model, tokenizer):\n    pass\n",
            ": `sample_inputs` returns None, and not a dict of inputs",
        ),
        (
            "def sample_inputs(model, tokenizer):\n    return {'pixels': 1}\n",
            ": `sample_inputs` returns 'pixels', which is no input of BertModel",
        ),
        (
            "def sample_inputs(model, tokenizer):\n    return {'use_cache': True}\n",
            ": `sample_inputs` returns no tensor",
        ),
    ],
)
def test_faults_of_the_file_are_named_with_its_line(
    tmp_path: Path, text: str, message: str
) -> None:
    path = _file(tmp_path, text)
    spec = make_spec("dynamo", {}, inputs_from=path)
    model = tiny_bert()
    if "use_cache" in text:
        model.forward = _with_a_flag
    with pytest.raises(ExportError) as caught:
        build_sample_inputs(model, None, spec)
    said = str(caught.value)
    assert said.startswith("`inputs_from` ")
    assert f"{path}{message}" in said


def _with_a_flag(use_cache: bool) -> None:
    raise AssertionError(use_cache)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ("[]", "`components` returns a list, and not a dict of components"),
        ("{}", "`components` returns a dict, and not a dict of components"),
        ("{'De code': (model, inputs)}", "returns the name 'De code', and not small letters"),
        ("{'decode': model}", "returns a BertModel for 'decode', and not (module, inputs)"),
        ("{'decode': (inputs, model)}", "returns a tuple for 'decode', and not (module, inputs)"),
    ],
)
def test_components_have_to_be_modules_with_inputs(
    tmp_path: Path, returned: str, message: str
) -> None:
    path = _file(tmp_path, f"def components(model, inputs):\n    return {returned}\n")
    custom = custom_inputs(make_spec("dynamo", {}, inputs_from=path))
    assert custom is not None
    with pytest.raises(ExportError) as caught:
        custom.components(tiny_bert(), {})
    assert message in str(caught.value)
