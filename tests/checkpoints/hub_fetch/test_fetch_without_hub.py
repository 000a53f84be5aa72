"""A fetch that finds its files on this machine, or no hub."""

from __future__ import annotations

from pathlib import Path

from checkpoints.hub_fetch.sandbox import CONFIG, REPO, WEIGHTS, Sandbox, sha256


def test_no_hub_and_no_cache(sandbox: Sandbox) -> None:
    sandbox.environment["HF_ENDPOINT"] = "http://127.0.0.1:9"
    assert sandbox.refusal().startswith(
        "`acme/tiny/model.safetensors` isn't in the hub cache, and no hub can be reached: "
        "Connection refused."
    )


def test_offline_and_no_cache(sandbox: Sandbox) -> None:
    sandbox.environment["HF_HUB_OFFLINE"] = "1"
    assert "and HF_HUB_OFFLINE is set. Unset it, or point HF_HUB_CACHE" in sandbox.refusal()
    assert sandbox.hub.requests == []


def _user_cache(sandbox: Sandbox, weights: bytes) -> Path:
    """The user's hub cache with both files, as huggingface_hub 2.4.0 lays it out."""
    repository = sandbox.hub.repositories[REPO]
    folder = sandbox.home / ".cache/huggingface/hub/models--acme--tiny"
    snapshot = folder / "snapshots" / repository.refs["refs/heads/main"]
    snapshot.mkdir(parents=True)
    (folder / "blobs").mkdir()
    for name, blob, data in (
        ("model.safetensors", sha256(WEIGHTS), weights),
        ("config.json", "1234", CONFIG),
    ):
        (folder / "blobs" / blob).write_bytes(data)
        (snapshot / name).symlink_to(f"../../blobs/{blob}")
    return folder / "blobs" / sha256(WEIGHTS)


def test_the_users_cache_is_asked_first(sandbox: Sandbox) -> None:
    blob = _user_cache(sandbox, WEIGHTS)
    sandbox.environment["HF_HUB_OFFLINE"] = "1"
    fetched = sandbox.fetch("model.safetensors", "config.json")
    assert fetched.exit_code == 0, fetched.stderr
    assert fetched.files == {sha256(WEIGHTS): WEIGHTS, sha256(CONFIG): CONFIG}
    assert sandbox.hub.requests == []
    output = sandbox.root / "sandbox1/output" / sha256(WEIGHTS)
    assert not output.is_symlink() and output.samefile(blob)


def test_a_wrong_file_in_the_users_cache_does_not_count(sandbox: Sandbox) -> None:
    _user_cache(sandbox, WEIGHTS[:-1] + b"?")
    fetched = sandbox.fetch("model.safetensors")
    assert (fetched.exit_code, fetched.files) == (0, {sha256(WEIGHTS): WEIGHTS})
    assert len(sandbox.hub.requests) == 2


def test_without_a_pants_that_answers(sandbox: Sandbox) -> None:
    _, _, folder = sandbox.start("config.json")
    process = sandbox.process(folder)
    _, stderr = process.communicate(timeout=300)
    assert process.returncode == 1
    assert "no Pants answers there (FileNotFoundError)" in stderr.splitlines()[-1]
    assert not (folder / "output").exists()
