"""Files of a hub arrive whole, under their hashes, and cost little memory."""

from __future__ import annotations

import json
import os

from checkpoints.hub_fetch.sandbox import CONFIG, REPO, WEIGHTS, Sandbox, sha256
from hub.repositories import Content as HubContent
from hub.tiny_qwen3 import tiny_qwen3
from model_export.checkpoints.hub_fetch_request import Content, FetchRequest


def test_files_arrive_under_their_hashes(sandbox: Sandbox) -> None:
    fetched = sandbox.fetch("model.safetensors", "config.json")
    assert (fetched.exit_code, fetched.files) == (
        0,
        {sha256(WEIGHTS): WEIGHTS, sha256(CONFIG): CONFIG},
    )
    assert fetched.last.startswith("9.4 MB from the hub and 0 bytes from this machine in ")
    # Moved out of the named cache, not copied.
    assert list((sandbox.root / "named_cache").iterdir()) == []


def test_the_request_has_neither_repository_nor_path_nor_endpoint(sandbox: Sandbox) -> None:
    """It is the cache key: the same content from another place is the same process."""
    first = FetchRequest((Content("a" * 64, 1), Content("b" * 64, 2)))
    second = FetchRequest((Content("b" * 64, 2), Content("a" * 64, 1), Content("a" * 64, 1)))
    assert first.to_json() == second.to_json()
    files = f'{{"sha256":"{"a" * 64}","size":1}},{{"sha256":"{"b" * 64}","size":2}}'
    assert first.to_json() == f'{{"files":[{files}]}}'


def test_memory_stays_flat(sandbox: Sandbox) -> None:
    """200 MB need no more memory than 9 do."""
    peaks = []
    for size in (9_000_000, 200_000_000):
        repository = sandbox.hub.repositories[REPO]
        repository.commit({"model.safetensors": HubContent(zeros=size)})
        listener, _, folder = sandbox.start("model.safetensors")
        with listener:
            process = sandbox.process(folder)
            assert process.stderr is not None
            process.stderr.read()
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        peaks.append(usage.ru_maxrss * 1024)
    assert peaks[1] - peaks[0] < 20_000_000


def test_shards_and_their_index_arrive(sandbox: Sandbox) -> None:
    files = tiny_qwen3(shards=3)
    index = json.loads(files["model.safetensors.index.json"])
    assert len(set(index["weight_map"].values())) == 3
    sandbox.hub.repositories[REPO].commit(files)
    fetched = sandbox.fetch(*files)
    assert fetched.exit_code == 0, fetched.stderr
    assert fetched.files == {sha256(data): data for data in files.values()}
