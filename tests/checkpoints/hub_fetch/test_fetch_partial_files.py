"""What a fetch that ended early leaves for the next, and that two at once don't mix."""

from __future__ import annotations

import time

import pytest

from checkpoints.hub_fetch.sandbox import WEIGHTS, Sandbox, sha256
from hub.faults import Cut, Status


def test_a_killed_fetch_is_resumed_by_the_next(sandbox: Sandbox) -> None:
    cut = 5 << 20
    sandbox.hub.misbehave(Cut(cut), path="/" + sha256(WEIGHTS))
    sandbox.hub.misbehave(Status(429, {"Retry-After": "200"}), path="/" + sha256(WEIGHTS))
    listener, reports, folder = sandbox.start("model.safetensors")
    with listener:
        process = sandbox.process(folder)
        deadline = time.monotonic() + 30
        while not any("rate limit" in line for line in reports):
            assert time.monotonic() < deadline, reports
            time.sleep(0.05)
        process.kill()
        process.communicate()
    assert not list((folder / "output").iterdir())
    (partial,) = (sandbox.root / "named_cache").iterdir()
    size = partial.stat().st_size
    assert 0 < size <= cut
    sandbox.hub.requests.clear()
    fetched = sandbox.fetch("model.safetensors")
    assert (fetched.exit_code, fetched.files) == (0, {sha256(WEIGHTS): WEIGHTS})
    assert sandbox.hub.requests[0].headers["range"] == f"bytes={size}-"


@pytest.mark.parametrize("size", [5 << 20, len(WEIGHTS), len(WEIGHTS) + 1])
def test_a_partial_file_that_is_wrong_costs_a_second_try(sandbox: Sandbox, size: int) -> None:
    (sandbox.root / "named_cache").mkdir()
    (sandbox.root / "named_cache" / sha256(WEIGHTS)).write_bytes(bytes(size))
    fetched = sandbox.fetch("model.safetensors")
    assert (fetched.exit_code, fetched.files) == (0, {sha256(WEIGHTS): WEIGHTS})


def test_two_fetches_of_one_file_do_not_share_its_partial(sandbox: Sandbox) -> None:
    first, _, here = sandbox.start("model.safetensors")
    second, _, there = sandbox.start("model.safetensors")
    with first, second:
        processes = [sandbox.process(here), sandbox.process(there)]
        for process in processes:
            process.communicate(timeout=300)
    for process, folder in zip(processes, (here, there), strict=True):
        assert process.returncode == 0
        assert (folder / "output" / sha256(WEIGHTS)).read_bytes() == WEIGHTS
