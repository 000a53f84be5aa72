"""The keys that the plugin knows are the engine's: an upgrade that adds or drops one fails here."""

from __future__ import annotations

import dataclasses

import pytest
from transformers import GenerationConfig
from transformers.exporters.auto import EXPORT_BACKENDS
from transformers.generation.configuration_utils import ALL_CACHE_IMPLEMENTATIONS

from model_export.plugin.config_keys import CONFIG_KEYS, REFUSED_CONFIG_KEYS
from model_export.plugin.generation_checks import GENERATION_CONFIG_KEYS
from model_export.spec import CACHE_IMPLEMENTATIONS

# In the guide, and no longer in transformers 5.24.0: the backends here do them.
OURS = {
    "dynamo": set(),
    "executorch": set(),
    "onnx": {"external_data", "export_params", "keep_initializers_as_inputs"},
    "openvino": set(),
}


def test_generation_config_keys() -> None:
    known = {key for key in vars(GenerationConfig()) if not key.startswith("_")}
    assert set(GENERATION_CONFIG_KEYS) == known - {"transformers_version"}


def test_cache_implementations() -> None:
    assert set(CACHE_IMPLEMENTATIONS) <= set(ALL_CACHE_IMPLEMENTATIONS)


@pytest.mark.parametrize("export_format", sorted(OURS))
def test_config_keys(export_format: str) -> None:
    config_class = EXPORT_BACKENDS[export_format].config
    engine = {field.name for field in dataclasses.fields(config_class)}
    ours = {key.name for key in CONFIG_KEYS.values() if export_format in key.formats}
    assert ours - OURS[export_format] == engine - set(REFUSED_CONFIG_KEYS) - {"export_format"}
    assert not OURS[export_format] & engine, "The engine has these again: let it do them."
