"""A fetch process against a hub that behaves, and one that doesn't: the right bytes or one line."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from hub.faults import Corrupt, Cut, IgnoreRange, RedirectLoop, Status, WrongSize
from hub.repositories import Content as HubContent
from hub.repositories import HubRepository
from hub.server import Hub
from model_export.checkpoints import hub_fetch
from model_export.checkpoints.hub_fetch_channel import FetchOrder, Listener
from model_export.checkpoints.hub_fetch_request import Content, FetchRequest

REPO = "acme/tiny"
TOKEN = "hf_SecretOfTheUser0123456789"
# Incompressible, and not a multiple of any buffer: 9 MiB and 17 bytes, so a large file.
WEIGHTS = hashlib.shake_256(b"weights").digest((9 << 20) + 17)
CONFIG = b'{"architectures": ["BertModel"]}'


@pytest.fixture
def hub() -> Iterator[Hub]:
    repository = HubRepository(REPO, {"model.safetensors": WEIGHTS, "config.json": CONFIG})
    with Hub([repository], tokens={TOKEN: [REPO]}) as hub:
        yield hub


@dataclass
class Fetched:
    """What a fetch process left and said."""

    exit_code: int
    stderr: str
    files: dict[str, bytes]
    reports: list[str]

    @property
    def last(self) -> str:
        return self.stderr.splitlines()[-1]


@dataclass
class Sandbox:
    """Runs fetch processes as Pants does: few variables, a folder of their own, a named cache."""

    hub: Hub
    home: Path
    root: Path
    runs: int = 0
    environment: dict[str, str] = field(default_factory=dict)

    def start(
        self, *names: str, content: Content | None = None
    ) -> tuple[Listener, list[str], Path]:
        repository = self.hub.repositories[REPO]
        commit = repository.refs["refs/heads/main"]
        files = repository.commits[commit]
        contents = {name: content or _content(files[name].content) for name in names}
        order = FetchOrder(
            repo=REPO,
            revision="main",
            commit=commit,
            paths={content.sha256: name for name, content in contents.items()},
            environment={
                "HOME": str(self.home),
                "HF_ENDPOINT": self.hub.endpoint,
                **self.environment,
            },
        )
        self.runs += 1
        folder = self.root / f"sandbox{self.runs}"
        (folder / ".cache").mkdir(parents=True)
        cache = self.root / "named_cache"
        cache.mkdir(exist_ok=True)
        (folder / ".cache/model_export_hub").symlink_to(cache)
        request = FetchRequest(tuple(contents.values())).to_json().encode()
        (folder / "request.json").write_bytes(request)
        reports: list[str] = []
        return Listener(request, order, reports.append), reports, folder

    def fetch(self, *names: str, content: Content | None = None) -> Fetched:
        listener, reports, folder = self.start(*names, content=content)
        with listener:
            process = self.process(folder)
            _, stderr = process.communicate(timeout=60)
        output = folder / "output"
        files = {path.name: path.read_bytes() for path in output.glob("*")}
        return Fetched(process.returncode, stderr, files, reports)

    def process(self, folder: Path) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [
                sys.executable,
                "-m",
                hub_fetch.__name__,
                "request.json",
                "output",
            ],
            cwd=folder,
            env={
                "PYTHONPATH": os.pathsep.join(str(Path(path).resolve()) for path in sys.path),
                "PYTHONDONTWRITEBYTECODE": "1",
                "LANG": "C.UTF-8",
            },
            stderr=subprocess.PIPE,
            text=True,
        )


def _content(content: HubContent) -> Content:
    return Content(content.sha256, content.size)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def sandbox(hub: Hub, tmp_path: Path) -> Sandbox:
    home = tmp_path / "home"
    home.mkdir()
    return Sandbox(hub, home, tmp_path)


def test_files_arrive_under_their_hashes(sandbox: Sandbox) -> None:
    fetched = sandbox.fetch("model.safetensors", "config.json")
    assert (fetched.exit_code, fetched.files) == (
        0,
        {_sha256(WEIGHTS): WEIGHTS, _sha256(CONFIG): CONFIG},
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


def test_a_token_goes_to_the_hub_and_not_where_it_redirects(sandbox: Sandbox) -> None:
    sandbox.hub.repositories[REPO].gated = "auto"
    sandbox.environment["HF_TOKEN"] = TOKEN
    fetched = sandbox.fetch("model.safetensors")
    assert fetched.exit_code == 0
    sent = {
        request.server: request.headers.get("authorization") for request in sandbox.hub.requests
    }
    assert sent == {"hub": f"Bearer {TOKEN}", "cdn": None}
    assert TOKEN not in fetched.stderr + "".join(fetched.reports)


@pytest.mark.parametrize("place", ["HF_TOKEN_PATH", "HF_HOME", "HOME"])
def test_a_token_from_the_file_of_a_login(sandbox: Sandbox, tmp_path: Path, place: str) -> None:
    sandbox.hub.repositories[REPO].gated = "auto"
    file = tmp_path / "login/token"
    if place == "HOME":
        file = sandbox.home / ".cache/huggingface/token"
    else:
        sandbox.environment[place] = str(file if place == "HF_TOKEN_PATH" else file.parent)
    file.parent.mkdir(parents=True)
    file.write_text(f"{TOKEN}\n", encoding="utf-8")
    assert sandbox.fetch("model.safetensors").exit_code == 0


def test_a_broken_token_is_not_quoted(sandbox: Sandbox) -> None:
    sandbox.environment["HF_TOKEN"] = f"{TOKEN} and\x01more"
    fetched = sandbox.fetch("config.json")
    assert fetched.exit_code == 1
    assert fetched.last == (
        "`acme/tiny/config.json` can't be fetched: the token has a character that no token has. "
        "Set HF_TOKEN to the token alone, or log in anew: `hf auth login`."
    )
    assert TOKEN not in fetched.stderr


def _refusal(sandbox: Sandbox) -> str:
    fetched = sandbox.fetch("model.safetensors")
    assert (fetched.exit_code, fetched.files) == (1, {})
    assert TOKEN not in fetched.stderr and "Traceback" not in fetched.stderr
    return fetched.last


def test_a_gated_model_without_and_with_a_useless_token(sandbox: Sandbox) -> None:
    sandbox.hub.repositories[REPO].gated = "manual"
    assert _refusal(sandbox) == (
        "`acme/tiny/model.safetensors` is gated, and this account has no access. Ask for access on "
        "the model's page, then log in (`hf auth login`) or set HF_TOKEN."
    )
    sandbox.hub.tokens["hf_other"] = frozenset()
    sandbox.environment["HF_TOKEN"] = "hf_other"
    assert _refusal(sandbox).endswith("with the account of your token.")


def test_a_private_or_unknown_model(sandbox: Sandbox) -> None:
    sandbox.hub.repositories[REPO].private = True
    assert _refusal(sandbox) == (
        "`acme/tiny/model.safetensors` isn't there, or is private (401). Check the id; if it is "
        "private, log in (`hf auth login`) or set HF_TOKEN."
    )


@pytest.mark.parametrize(
    ("status", "code", "says"),
    [
        (401, "", "isn't there, or is private (401). Check the id; if it is private, log in"),
        (403, "", "is forbidden to this account (403). Give the token read access"),
        (404, "EntryNotFound", "isn't in commit "),
        (404, "RevisionNotFound", "which the hub doesn't have any more. Lock what it has: "),
        (404, "", "wasn't found on the hub (404). Check HF_ENDPOINT, or lock what the hub has: "),
        (418, "", "was refused by the hub (HTTP status 418). Check HF_ENDPOINT."),
    ],
)
def test_refusals(sandbox: Sandbox, status: int, code: str, says: str) -> None:
    sandbox.hub.misbehave(Status(status, {"X-Error-Code": code} if code else {}))
    assert says in _refusal(sandbox)


def test_a_refused_token(sandbox: Sandbox) -> None:
    sandbox.environment["HF_TOKEN"] = "hf_expired"
    sandbox.hub.misbehave(Status(401))
    assert "the hub doesn't accept the token (401). Renew it" in _refusal(sandbox)


def test_a_renamed_model_is_still_the_locked_one(sandbox: Sandbox) -> None:
    listener, _, folder = sandbox.start("model.safetensors")
    sandbox.hub.rename(REPO, "acme/renamed")
    with listener:
        process = sandbox.process(folder)
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == 0, stderr
    assert "acme/tiny is 'acme/renamed' on the hub by now; the lock's name still works" in stderr


def test_another_file_is_refused_before_it_is_read(sandbox: Sandbox) -> None:
    """The hub says in its redirect which file it has: nothing of 9 MiB is fetched."""
    wrong = Content("0" * 64, len(WEIGHTS))
    fetched = sandbox.fetch("model.safetensors", content=wrong)
    assert (fetched.exit_code, fetched.files) == (1, {})
    assert fetched.last == (
        "`acme/tiny/model.safetensors` isn't what the lock pins: its sha256 is "
        f"{_sha256(WEIGHTS)}, not {'0' * 64}, so the hub's file changed or something between "
        "lies. If the change is known and wanted: ./pants lock-checkpoints --upgrade=acme/tiny."
    )
    assert list((sandbox.root / "named_cache").iterdir()) == []


def test_a_corrupt_body_is_refused_and_not_kept(sandbox: Sandbox) -> None:
    sandbox.hub.misbehave(Corrupt(7 << 20), path="/" + _sha256(WEIGHTS))
    assert "its sha256 is " in _refusal(sandbox)
    assert list((sandbox.root / "named_cache").iterdir()) == []
    assert sandbox.fetch("model.safetensors").exit_code == 0


@pytest.mark.parametrize("difference", [-1, 1, 1000])
def test_a_wrong_size(sandbox: Sandbox, difference: int) -> None:
    sandbox.hub.misbehave(WrongSize(difference), path="/" + _sha256(WEIGHTS))
    assert f"its size in bytes is {len(WEIGHTS) + difference}, not {len(WEIGHTS)}" in _refusal(
        sandbox
    )


@pytest.mark.parametrize(
    "fault",
    [
        Cut(5 << 20),
        Cut(0),
        Cut(-1),
        Status(500),
        Status(503, {"Retry-After": "1"}),
        Status(429, {"Retry-After": "1"}),
        Status(429, {"ratelimit": '"resolvers";r=0;t=1'}),
    ],
    ids=["cut", "cut-at-once", "no-answer", "500", "503", "429", "ratelimit"],
)
def test_what_passes_is_tried_again(sandbox: Sandbox, fault: Cut | Status) -> None:
    sandbox.hub.misbehave(fault, path="/" + _sha256(WEIGHTS))
    fetched = sandbox.fetch("model.safetensors")
    assert (fetched.exit_code, fetched.files) == (0, {_sha256(WEIGHTS): WEIGHTS})
    ranges = [r.headers.get("range") for r in sandbox.hub.requests if r.server == "cdn"]
    if fault == Cut(5 << 20):
        assert ranges[0] is None
        # The client may have lost what lay in a buffer as the connection ended.
        assert ranges[1] is not None and int(ranges[1][len("bytes=") : -1]) > 4 << 20
    assert any("again in" in line for line in fetched.reports)


def test_a_hub_that_cannot_resume_sends_it_all(sandbox: Sandbox) -> None:
    sandbox.hub.misbehave(Cut(5 << 20), path="/" + _sha256(WEIGHTS))
    sandbox.hub.misbehave(IgnoreRange(), path="/" + _sha256(WEIGHTS), times=2)
    fetched = sandbox.fetch("model.safetensors")
    assert (fetched.exit_code, fetched.files) == (0, {_sha256(WEIGHTS): WEIGHTS})


def test_a_long_wait_ends_the_fetch_at_once(sandbox: Sandbox) -> None:
    sandbox.hub.misbehave(Status(429, {"Retry-After": "3600"}))
    started = time.monotonic()
    assert "has to wait: the hub asks to be left alone for 3600 s" in _refusal(sandbox)
    assert time.monotonic() - started < 20


def test_redirects_without_end(sandbox: Sandbox) -> None:
    sandbox.hub.misbehave(RedirectLoop(), times=1000)
    assert "the hub's redirects don't end" in _refusal(sandbox)


@pytest.mark.parametrize(
    "location", ["file:///etc/passwd", "http://[bad", "//", "\\\\host\\share", "ftp://localhost/x"]
)
def test_a_redirect_to_nowhere(sandbox: Sandbox, location: str) -> None:
    sandbox.hub.misbehave(Status(302, {"Location": location}), times=1000)
    _refusal(sandbox)


def test_no_hub_and_no_cache(sandbox: Sandbox) -> None:
    sandbox.environment["HF_ENDPOINT"] = "http://127.0.0.1:9"
    assert _refusal(sandbox).startswith(
        "`acme/tiny/model.safetensors` isn't in the hub cache, and no hub can be reached: "
        "Connection refused."
    )


def test_offline_and_no_cache(sandbox: Sandbox) -> None:
    sandbox.environment["HF_HUB_OFFLINE"] = "1"
    assert "and HF_HUB_OFFLINE is set. Unset it, or point HF_HUB_CACHE" in _refusal(sandbox)
    assert sandbox.hub.requests == []


def _user_cache(sandbox: Sandbox, weights: bytes) -> Path:
    """The user's hub cache with both files, as huggingface_hub 2.4.0 lays it out."""
    repository = sandbox.hub.repositories[REPO]
    folder = sandbox.home / ".cache/huggingface/hub/models--acme--tiny"
    snapshot = folder / "snapshots" / repository.refs["refs/heads/main"]
    snapshot.mkdir(parents=True)
    (folder / "blobs").mkdir()
    for name, blob, data in (
        ("model.safetensors", _sha256(WEIGHTS), weights),
        ("config.json", "1234", CONFIG),
    ):
        (folder / "blobs" / blob).write_bytes(data)
        (snapshot / name).symlink_to(f"../../blobs/{blob}")
    return folder / "blobs" / _sha256(WEIGHTS)


def test_the_users_cache_is_asked_first(sandbox: Sandbox) -> None:
    blob = _user_cache(sandbox, WEIGHTS)
    sandbox.environment["HF_HUB_OFFLINE"] = "1"
    fetched = sandbox.fetch("model.safetensors", "config.json")
    assert fetched.exit_code == 0, fetched.stderr
    assert fetched.files == {_sha256(WEIGHTS): WEIGHTS, _sha256(CONFIG): CONFIG}
    assert sandbox.hub.requests == []
    output = sandbox.root / "sandbox1/output" / _sha256(WEIGHTS)
    assert not output.is_symlink() and output.samefile(blob)


def test_a_wrong_file_in_the_users_cache_does_not_count(sandbox: Sandbox) -> None:
    _user_cache(sandbox, WEIGHTS[:-1] + b"?")
    fetched = sandbox.fetch("model.safetensors")
    assert (fetched.exit_code, fetched.files) == (0, {_sha256(WEIGHTS): WEIGHTS})
    assert len(sandbox.hub.requests) == 2


def test_a_killed_fetch_is_resumed_by_the_next(sandbox: Sandbox) -> None:
    cut = 5 << 20
    sandbox.hub.misbehave(Cut(cut), path="/" + _sha256(WEIGHTS))
    sandbox.hub.misbehave(Status(429, {"Retry-After": "200"}), path="/" + _sha256(WEIGHTS))
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
    assert (fetched.exit_code, fetched.files) == (0, {_sha256(WEIGHTS): WEIGHTS})
    assert sandbox.hub.requests[0].headers["range"] == f"bytes={size}-"


@pytest.mark.parametrize("size", [5 << 20, len(WEIGHTS), len(WEIGHTS) + 1])
def test_a_partial_file_that_is_wrong_costs_a_second_try(sandbox: Sandbox, size: int) -> None:
    (sandbox.root / "named_cache").mkdir()
    (sandbox.root / "named_cache" / _sha256(WEIGHTS)).write_bytes(bytes(size))
    fetched = sandbox.fetch("model.safetensors")
    assert (fetched.exit_code, fetched.files) == (0, {_sha256(WEIGHTS): WEIGHTS})


def test_two_fetches_of_one_file_do_not_share_its_partial(sandbox: Sandbox) -> None:
    first, _, here = sandbox.start("model.safetensors")
    second, _, there = sandbox.start("model.safetensors")
    with first, second:
        processes = [sandbox.process(here), sandbox.process(there)]
        for process in processes:
            process.communicate(timeout=60)
    for process, folder in zip(processes, (here, there), strict=True):
        assert process.returncode == 0
        assert (folder / "output" / _sha256(WEIGHTS)).read_bytes() == WEIGHTS


def test_without_a_pants_that_answers(sandbox: Sandbox) -> None:
    _, _, folder = sandbox.start("config.json")
    process = sandbox.process(folder)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "no Pants answers there (FileNotFoundError)" in stderr.splitlines()[-1]
    assert not (folder / "output").exists()


def test_an_order_is_not_printed_with_its_token() -> None:
    order = FetchOrder(REPO, "main", "0" * 40, {}, {"HF_TOKEN": TOKEN})
    assert TOKEN not in repr(order) and TOKEN not in str(order)


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
