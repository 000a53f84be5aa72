"""Exports of one tiny decoder, each made once for all tests of this folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.backends.openvino.exported import Exported
from exporter.backends.tiny_models import export, generation_spec, left_padded, tiny_qwen3


def _export(folder: Path, components: tuple[str, ...], **config: bool) -> Exported:
    spec = generation_spec("openvino", dict(config), components=components)
    records = export(tiny_qwen3(), left_padded(2, 8, 3), spec, folder)
    return Exported(tiny_qwen3(), folder, records)


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """Prefill, and a decode graph with the cache as its state, in one artifact."""
    return _export(tmp_path_factory.mktemp("qwen3"), ("prefill", "decode"))


@pytest.fixture(scope="session")
def stateful(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """That decode graph alone."""
    return _export(tmp_path_factory.mktemp("stateful"), ("decode",))


@pytest.fixture(scope="session")
def stateless(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """A decode graph alone, with the cache as inputs and outputs."""
    return _export(tmp_path_factory.mktemp("stateless"), ("decode",), stateful=False)
