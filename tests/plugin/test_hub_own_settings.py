"""A hub id with shards, code and a recipe, by whole runs of Pants up to an artifact."""

from __future__ import annotations

import json
import os
import uuid
from pathlib import Path
from typing import Any, Dict, Iterator

import pytest

from hub.repositories import HubRepository
from hub.server import Hub
from hub.tiny_qwen3 import tiny_qwen3
from plugin.build_root import BuildRoot, end_daemons

REPO = "acme/own"
RECIPE: Dict[str, Any] = {
    "schema_version": 1,
    "config": {"export_format": "onnx", "dynamic": True, "opset_version": 20},
    "for_generation": True,
    "multi_token_decode": True,
}
BUILD = f'export_model(name="x", model="{REPO}", recipe=True, {{more}})\n'
MODELING = """\
from transformers import Qwen3ForCausalLM


class OwnForCausalLM(Qwen3ForCausalLM):
    pass
"""


def _files() -> Dict[str, bytes]:
    files = tiny_qwen3(uuid.uuid4().hex, shards=2)
    config = json.loads(files["config.json"])
    config["architectures"] = ["OwnForCausalLM"]
    config["auto_map"] = {"AutoModelForCausalLM": "modeling_own.OwnForCausalLM"}
    return {
        **files,
        "config.json": json.dumps(config).encode(),
        "modeling_own.py": MODELING.encode(),
        "export_config.json": json.dumps(RECIPE).encode(),
    }


@pytest.fixture
def hub() -> Iterator[Hub]:
    if "PANTS_PEX_CLI_VERSION" not in os.environ:
        pytest.skip("needs the pex CLI that ./pants builds")
    with Hub([HubRepository(REPO, _files())]) as hub:
        yield hub


@pytest.fixture
def build_root(tmp_path: Path) -> Iterator[BuildRoot]:
    yield BuildRoot.make(tmp_path / "here", BUILD.format(more=""))
    end_daemons(tmp_path)


def _lock(build_root: BuildRoot, hub: Hub) -> None:
    done = build_root.pants("lock-checkpoints", "m:x", endpoint=hub.endpoint)
    assert done.returncode == 0, done.stdout[-4000:]


def test_code_and_recipe_of_a_repository(hub: Hub, build_root: BuildRoot) -> None:
    _lock(build_root, hub)
    said = build_root.refused("package", "m:x", endpoint=hub.endpoint)
    assert "isn't a model class of transformers" in said
    assert said.endswith("or trust_remote_code=True if you trust that code.")

    build_root.write(BUILD.format(more='trust_remote_code=True, config={"optimize": False}'))
    _lock(build_root, hub)
    said = build_root.builds(endpoint=hub.endpoint)
    assert "Completed: Export acme/own@" in said
    manifest = build_root.manifest()
    assert manifest.verification.status == "passed"
    assert "modeling_own.py" in {file.path for file in manifest.checkpoint.files}
    assert [component.name for component in manifest.components] == ["decode"]
    assert (manifest.spec["config"]["opset_version"], manifest.spec["config"]["optimize"]) == (
        20,
        False,
    )
    assert manifest.recipe is not None
    assert manifest.recipe.file == "export_config.json"
    assert manifest.recipe.settings == {k: v for k, v in RECIPE.items() if k != "schema_version"}
    assert manifest.recipe.overridden == {"config": {"optimize": False}}

    # What is spelled out is the same export, and comes from the cache.
    spelled_out = (
        f'export_model(name="x", model="{REPO}", trust_remote_code=True, for_generation=True, '
        'multi_token_decode=True, config={"export_format": "onnx", "dynamic": True, '
        '"opset_version": 20, "optimize": False})\n'
    )
    recipe = (build_root.artifact / "export_config.json").read_text(encoding="utf-8")
    build_root.write(spelled_out)
    assert "Export acme/own@" not in build_root.builds(endpoint=hub.endpoint)
    assert build_root.manifest().recipe is None
    assert build_root.manifest().files == manifest.files

    # The artifact's recipe beside the weights: nothing is said in the BUILD file any more.
    repository = hub.repositories[REPO]
    repository.commit(
        {
            **repository.commits[repository.refs["refs/heads/main"]],
            "export_config.json": recipe.encode(),
        }
    )
    build_root.write(BUILD.format(more="trust_remote_code=True"))
    done = build_root.pants("lock-checkpoints", f"--upgrade={REPO}", "m:x", endpoint=hub.endpoint)
    assert "~ export_config.json" in done.stdout
    build_root.builds(endpoint=hub.endpoint)
    assert build_root.manifest().spec == manifest.spec
    assert build_root.manifest().files == manifest.files
