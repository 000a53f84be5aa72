"""Targets that can be read and not built are refused before any process starts, with the remedy."""

from __future__ import annotations

import glob
from typing import NamedTuple

import pytest
from pants.engine.addresses import Address
from pants.engine.internals.scheduler import ExecutionError
from pants.engine.platform import Platform
from pants.testutil.rule_runner import RuleRunner

from model_export.plugin.artifacts import Artifact, ArtifactRequest

CONFIG = '{"export_format": "onnx", "dynamic": True}'
MLX = '{"export_format": "executorch", "backend": "mlx"}'
CUDA = '{"export_format": "executorch", "backend": "cuda"}'
HERE = Platform.create_for_localhost().value
ELSEWHERE = "macos_arm64" if HERE.startswith("linux") else "linux_x86_64"
LOCAL = 'local_checkpoint(name="ckpt", sources=["*.json", "*.safetensors"])\n'


class Unbuildable(NamedTuple):
    """A BUILD file that is read, whose target `x` can't be built, and the whole line it gives."""

    name: str
    build: str
    message: str


def _export(model: str, more: str = "") -> str:
    return f'export_model(name="x", model="{model}", config={CONFIG}, {more})\n'


UNBUILDABLE = [
    Unbuildable(
        "hub_id",
        _export("Qwen/Qwen3-0.6B"),
        "unbuildable/hub_id:x: `model` 'Qwen/Qwen3-0.6B' isn't locked: hub ids are pinned in "
        "3rdparty/checkpoints.lock.json, which has no entry for it. Lock it: ./pants "
        "lock-checkpoints unbuildable/hub_id:x.",
    ),
    Unbuildable(
        "unknown_resolve",
        LOCAL + _export(":ckpt", 'resolve="onxx"'),
        "unbuildable/unknown_resolve:x: `resolve` is 'onxx', which is no resolve. Did you mean "
        "'onnx'? Known: absent, checkpoints, dynamo, executorch, nightly, onnx, openvino, "
        "unhashed",
    ),
    Unbuildable(
        "unhashed_lock",
        LOCAL + _export(":ckpt", 'resolve="unhashed"'),
        "unbuildable/unhashed_lock:x: `resolve` is 'unhashed', which isn't locked: "
        "3rdparty/unhashed/lock.txt:2 has no hash: `torch==2.12.0`. Compile the lock with hashes",
    ),
    Unbuildable(
        "absent_lock",
        LOCAL + _export(":ckpt", 'resolve="absent"'),
        "`resolve` is 'absent', whose lock 3rdparty/absent/lock.txt doesn't exist. Compile it",
    ),
    Unbuildable(
        "absent_lock_of_another_index",
        LOCAL + _export(":ckpt", 'resolve="nightly"'),
        "`resolve` is 'nightly', whose lock 3rdparty/nightly/lock.txt doesn't exist. Lock it: "
        "UV_INDEX=<another index> ./pants run 3rdparty:compile_locks -- nightly.",
    ),
    Unbuildable(
        "resolve_of_a_delegate",
        f'{LOCAL}export_model(name="x", model=":ckpt", config={MLX})\n',
        "`resolve` is 'executorch-mlx', which is no resolve. Did you mean 'executorch'? Known: "
        "absent, checkpoints, dynamo, executorch, nightly, onnx, openvino, unhashed "
        "([python].resolves in pants.toml).",
    ),
    Unbuildable(
        "platform",
        LOCAL + _export(":ckpt", f'resolve="absent", platforms=["{ELSEWHERE}"]'),
        f"unbuildable/platform:x: `platforms` is ['{ELSEWHERE}'], and this is {HERE}. Build it on "
        f"{ELSEWHERE}.",
    ),
    Unbuildable(
        "cuda",
        f'{LOCAL}export_model(name="x", model=":ckpt", config={CUDA}, dtype="bfloat16")\n',
        "unbuildable/cuda:x: `config['backend']` is 'cuda', and this machine has no CUDA GPU. "
        "Build it where one is, or use 'xnnpack'.",
    ),
    Unbuildable(
        "no_such_checkpoint",
        LOCAL + _export(":ckp"),
        "unbuildable/no_such_checkpoint:x: `model` is ':ckp', and there is no such target. Did you "
        "mean 'unbuildable/no_such_checkpoint:ckpt'?",
    ),
    Unbuildable(
        "not_a_checkpoint",
        'file(name="ckpt", source="config.json")\n' + _export(":ckpt"),
        "unbuildable/not_a_checkpoint:x: `model` is ':ckpt', a `file` target, which is no "
        "checkpoint. Name a `wheel_checkpoint`",
    ),
    Unbuildable(
        "no_weights",
        'local_checkpoint(name="ckpt", sources=["config.json"])\n' + _export(":ckpt"),
        "unbuildable/no_weights:ckpt: `sources` gives a checkpoint without weights. Its files are "
        "config.json: it needs model.safetensors.",
    ),
    Unbuildable(
        "no_config",
        'local_checkpoint(name="ckpt", sources=["pytorch_model.bin"])\n' + _export(":ckpt"),
        "unbuildable/no_config:ckpt: `sources` gives a checkpoint without config.json at its root.",
    ),
    Unbuildable(
        "pickle",
        'local_checkpoint(name="ckpt", sources=["config.json", "pytorch_model.bin"])\n'
        + _export(":ckpt"),
        "unbuildable/pickle:ckpt: `sources` has its weights in a pickle, pytorch_model.bin, which "
        "can run code when it is read. Convert it to safetensors, or set `allow_pickle=True`",
    ),
    Unbuildable(
        "outside_root",
        'local_checkpoint(name="ckpt", sources=["config.json"], root="sub")\n' + _export(":ckpt"),
        "unbuildable/outside_root:ckpt: `sources` has unbuildable/outside_root/config.json, which "
        "isn't below unbuildable/outside_root/sub.",
    ),
    Unbuildable(
        "unlocked_package",
        'wheel_checkpoint(name="ckpt", package="packagin", path="a")\n' + _export(":ckpt"),
        "unbuildable/unlocked_package:ckpt: `package` 'packagin' isn't locked in the resolve "
        "'checkpoints'. Did you mean 'packaging'?",
    ),
    Unbuildable(
        "random_without_architecture",
        'random_checkpoint(name="ckpt")\n' + _export(":ckpt"),
        "unbuildable/random_without_architecture:ckpt: `config` names config.json, which has no "
        "'architectures'.",
    ),
    Unbuildable(
        "random_not_json",
        'random_checkpoint(name="ckpt", config="broken.json")\n' + _export(":ckpt"),
        "unbuildable/random_not_json:ckpt: `config` names broken.json, which is no JSON",
    ),
]


def _skip_where_it_builds(case: Unbuildable) -> None:
    if case.name == "cuda" and glob.glob("/dev/nvidia[0-9]*"):
        pytest.skip("has a GPU")


@pytest.mark.parametrize("case", UNBUILDABLE, ids=lambda case: case.name)
def test_unbuildable(rule_runner: RuleRunner, case: Unbuildable) -> None:
    _skip_where_it_builds(case)
    folder = f"unbuildable/{case.name}"
    rule_runner.write_files(
        {
            f"{folder}/BUILD": case.build,
            f"{folder}/config.json": "{}",
            f"{folder}/broken.json": "{",
            f"{folder}/pytorch_model.bin": "",
        }
    )
    with pytest.raises(ExecutionError) as caught:
        rule_runner.request(Artifact, [ArtifactRequest(Address(folder, target_name="x"))])
    assert case.message in str(caught.value)
