"""The test hub, seen by an unmodified huggingface_hub client."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from huggingface_hub import HfApi, constants, hf_hub_download, hf_hub_url
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from hub.faults import Before, Corrupt, Cut, Json, RedirectLoop, Slow, Stall, Status, WrongSize
from hub.repositories import Content, HubRepository
from hub.server import Hub

CONFIG = b'{"model_type": "qwen3"}\n'
WEIGHTS = bytes(range(256)) * 5000
FILES = {"config.json": CONFIG, "model.safetensors": WEIGHTS, "sub folder/\u00fc.txt": b"x"}
TINY = "acme/tiny"
TOKEN = "hf_let_in"


@pytest.fixture(autouse=True)
def _client(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain LFS, online, and no waiting between tries."""
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)


@pytest.fixture
def hub() -> Iterator[Hub]:
    repositories = [
        HubRepository(TINY, FILES),
        HubRepository("acme/gated", FILES, gated="manual"),
        HubRepository("acme/private", FILES, private=True),
        HubRepository("gpt2", FILES, card={}),
    ]
    with Hub(repositories, tokens={TOKEN: ["acme/gated", "acme/private"], "hf_other": []}) as made:
        yield made


def _download(hub: Hub, folder: Path, name: str, **options: object) -> bytes:
    path = hf_hub_download(
        options.pop("repo", TINY),
        name,
        endpoint=hub.endpoint,
        cache_dir=folder,
        **{"token": False, **options},
    )
    return Path(path).read_bytes()


def test_describes_files(hub: Hub) -> None:
    info = HfApi(hub.endpoint, token=False).model_info(
        TINY, files_metadata=True, securityStatus=True
    )
    assert info.id == TINY and info.gated is False and info.private is False
    assert info.sha == hub.repositories[TINY].refs["refs/heads/main"]
    assert info.card_data is not None and info.card_data.license == "apache-2.0"
    files = {sibling.rfilename: sibling for sibling in info.siblings or ()}
    assert set(files) == set(FILES)
    # `git hash-object` of the same file.
    assert files["config.json"].blob_id == "bf71790119320bcfe5efcf174c4e380ace65ad4b"
    assert files["config.json"].size == len(CONFIG) and files["config.json"].lfs is None
    lfs = files["model.safetensors"].lfs
    assert lfs is not None and lfs.size == 1_280_000
    assert lfs.sha256 == hashlib.sha256(WEIGHTS).hexdigest()


def test_lists_trees_in_pages(hub: Hub) -> None:
    hub.tree_page = 1
    api = HfApi(hub.endpoint, token=False)
    assert [item.path for item in api.list_repo_tree(TINY)] == [
        "config.json",
        "model.safetensors",
        "sub folder",
    ]
    found = [item.path for item in api.list_repo_tree(TINY, recursive=True)]
    assert sorted(found) == sorted([*FILES, "sub folder"])
    (entry,) = api.get_paths_info(TINY, ["model.safetensors", "absent"])
    assert entry.path == "model.safetensors" and entry.size == 1_280_000


def test_resolves_every_kind_of_revision(hub: Hub) -> None:
    repository = hub.repositories[TINY]
    first = repository.refs["refs/heads/main"]
    repository.refs["refs/tags/v1"] = first
    second = repository.commit({"config.json": b"{}"})
    third = repository.commit({"config.json": b"[]"}, "refs/pr/1")
    api = HfApi(hub.endpoint, token=False)
    for revision, commit in {"main": second, "v1": first, first: first, "refs/pr/1": third}.items():
        assert api.model_info(TINY, revision=revision).sha == commit
    refs = api.list_repo_refs(TINY, include_pull_requests=True)
    assert [tag.target_commit for tag in refs.tags] == [first]
    assert [pull.target_commit for pull in refs.pull_requests or ()] == [third]
    with pytest.raises(RevisionNotFoundError):
        api.model_info(TINY, revision="v2")


def test_serves_files(hub: Hub, tmp_path: Path) -> None:
    for name, content in FILES.items():
        assert _download(hub, tmp_path, name) == content
    assert _download(hub, tmp_path, "config.json", repo="gpt2") == CONFIG
    with pytest.raises(EntryNotFoundError):
        _download(hub, tmp_path, "absent.json")
    assert {request.server for request in hub.requests} == {"hub", "cdn"}


def test_serves_ranges(hub: Hub) -> None:
    url = hf_hub_url(TINY, "model.safetensors", endpoint=hub.endpoint)
    for asked, expected in {
        "0-9": WEIGHTS[:10],
        "1279990-": WEIGHTS[-10:],
        "-3": WEIGHTS[-3:],
    }.items():
        answer = httpx2.get(url, headers={"Range": f"bytes={asked}"}, follow_redirects=True)
        assert answer.status_code == 206 and answer.content == expected
    answer = httpx2.get(url, headers={"Range": "bytes=1280000-"}, follow_redirects=True)
    assert answer.status_code == 416


def test_gates(hub: Hub, tmp_path: Path) -> None:
    api = HfApi(hub.endpoint, token=False)
    assert api.model_info("acme/gated").gated == "manual"
    for token in (False, "hf_other"):
        with pytest.raises(GatedRepoError):
            _download(hub, tmp_path, "config.json", repo="acme/gated", token=token)
        with pytest.raises(RepositoryNotFoundError):
            _download(hub, tmp_path, "config.json", repo="acme/private", token=token)
        with pytest.raises(RepositoryNotFoundError):
            _download(hub, tmp_path, "config.json", repo="acme/absent", token=token)
    for repo in ("acme/gated", "acme/private"):
        found = _download(hub, tmp_path, "model.safetensors", repo=repo, token=TOKEN)
        assert found == WEIGHTS
    with pytest.raises(HfHubHTTPError, match="Invalid credentials"):
        api.model_info(TINY, token="hf_revoked")


def test_records_where_a_token_went(hub: Hub, tmp_path: Path) -> None:
    _download(hub, tmp_path, "model.safetensors", repo="acme/gated", token=TOKEN)
    carried = {request.server for request in hub.requests if request.token == TOKEN}
    assert carried == {"hub"}


def test_redirects_from_an_old_id(hub: Hub, tmp_path: Path) -> None:
    hub.rename(TINY, "acme/small")
    assert HfApi(hub.endpoint, token=False).model_info(TINY).id == "acme/small"
    assert _download(hub, tmp_path, "config.json") == CONFIG


def test_limits_rates_and_fails(hub: Hub, tmp_path: Path) -> None:
    hub.misbehave(Status(429, {"Retry-After": "7"}), "/api/models/*")
    hub.misbehave(Status(503), "*/resolve/*", times=100)
    with pytest.raises(HfHubHTTPError) as caught:
        HfApi(hub.endpoint, token=False).model_info(TINY)
    assert caught.value.response.status_code == 429
    assert caught.value.response.headers["Retry-After"] == "7"
    assert HfApi(hub.endpoint, token=False).model_info(TINY).id == TINY
    answer = httpx2.get(hf_hub_url(TINY, "config.json", endpoint=hub.endpoint))
    assert answer.status_code == 503
    hub.behave()
    assert _download(hub, tmp_path, "config.json") == CONFIG


def test_cuts_and_the_client_goes_on_where_it_was(hub: Hub, tmp_path: Path) -> None:
    weights = Content(zeros=12 << 20)
    hub.add(HubRepository(TINY, {"model.safetensors": weights}))
    hub.misbehave(Cut(after=11 << 20), f"/{weights.sha256}", methods=("GET",))
    assert _download(hub, tmp_path, "model.safetensors") == bytes(12 << 20)
    ranges = [request.headers.get("range") for request in hub.requests if request.server == "cdn"]
    # The client reads 10 MiB at a time.
    assert ranges == [None, "bytes=10485760-"]


def test_lies(hub: Hub, tmp_path: Path) -> None:
    weights = f"/{hashlib.sha256(WEIGHTS).hexdigest()}"
    hub.misbehave(Corrupt(position=3), weights)
    found = _download(hub, tmp_path, "model.safetensors")
    assert found != WEIGHTS and len(found) == len(WEIGHTS)
    hub.misbehave(WrongSize(+1), "*/resolve-cache/*config.json", methods=("HEAD",))
    with pytest.raises(OSError, match="Consistency check failed"):
        _download(hub, tmp_path, "config.json")


def test_stalls_loops_and_is_slow(hub: Hub) -> None:
    url = hf_hub_url(TINY, "model.safetensors", endpoint=hub.endpoint)
    hub.misbehave(Stall(), "*/resolve/*")
    with pytest.raises(httpx2.ReadTimeout):
        httpx2.get(url, timeout=0.2)
    hub.misbehave(Stall(after=10), "/*", times=1, methods=("GET",))
    info = f"{hub.endpoint}/api/models/{TINY}"
    with pytest.raises(httpx2.ReadTimeout):
        httpx2.get(info, timeout=0.2)
    hub.misbehave(RedirectLoop(), "*/resolve/*", times=1000)
    with pytest.raises(httpx2.TooManyRedirects):
        httpx2.get(url, follow_redirects=True)
    hub.behave()
    hub.misbehave(Slow(bytes_per_second=1000), "/api/*")
    assert httpx2.get(info).json()["id"] == TINY


def test_moves_a_branch_while_it_is_read(hub: Hub) -> None:
    repository = hub.repositories[TINY]
    first = repository.refs["refs/heads/main"]
    hub.misbehave(Before(lambda: repository.commit({"config.json": b"{}"})), "*/resolve/*")
    answer = httpx2.head(hf_hub_url(TINY, "config.json", endpoint=hub.endpoint))
    assert answer.headers["X-Repo-Commit"] == repository.refs["refs/heads/main"] != first


def test_names_files_as_it_is_told(hub: Hub) -> None:
    hostile = ["../evil", "/etc/passwd", "a\\b", "a\0b", "A", "a", "\u202eyp"]
    hub.add(HubRepository(TINY, dict.fromkeys(hostile, b"x")))
    info = HfApi(hub.endpoint, token=False).model_info(TINY)
    assert [sibling.rfilename for sibling in info.siblings or ()] == hostile
    hub.misbehave(Json(lambda document: {**document, "gated": "auto"}))  # type: ignore[dict-item]
    assert HfApi(hub.endpoint, token=False).model_info(TINY).gated == "auto"


def test_serves_five_gigabytes_that_lie_nowhere(hub: Hub) -> None:
    size = 5 << 30
    content = Content(zeros=size)
    # Of 5 GiB of zeros: `head -c 5368709120 /dev/zero | sha256sum`.
    vars(content)["sha256"] = "7f06c62352aebd8125b2a1841e2b9e1ffcbed602f381c3dcb3200200e383d1d5"
    hub.add(HubRepository(TINY, {"model.safetensors": content}))
    url = hf_hub_url(TINY, "model.safetensors", endpoint=hub.endpoint)
    head = httpx2.head(url)
    assert head.headers["X-Linked-Size"] == str(size)
    end = httpx2.get(url, headers={"Range": f"bytes={size - 5}-"}, follow_redirects=True)
    assert end.content == bytes(5)


def test_serves_folders(hub: Hub, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    (checkpoint / "sub").mkdir(parents=True)
    (checkpoint / "config.json").write_bytes(CONFIG)
    (checkpoint / "sub" / "model.safetensors").write_bytes(WEIGHTS)
    hub.add(HubRepository.from_folder("acme/folder", checkpoint))
    found = _download(hub, tmp_path / "cache", "sub/model.safetensors", repo="acme/folder")
    assert found == WEIGHTS
