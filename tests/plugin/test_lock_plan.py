"""What has to be locked, worked out from what targets ask for and what is locked."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from model_export.checkpoint_ask import CheckpointAsk
from model_export.checkpoint_lock import CheckpointLock, LockedCheckpoint, LockedFile
from model_export.plugin.lock_plan import LockPlan, LockPlanError, TargetAsk, plan_lock
from model_export.plugin.lock_table import changes_table, size_text

A = LockedCheckpoint(
    repo="acme/a",
    revision="main",
    commit="a" * 40,
    license="mit",
    gated=False,
    pickle=False,
    remote_code=False,
    include=(),
    exclude=(),
    gguf_file=None,
    files=(LockedFile("config.json", 10, "1" * 64), LockedFile("model.safetensors", 5, "2" * 64)),
)
B = replace(A, repo="acme/b", gated="manual", license=None)
LOCK = CheckpointLock({A.key: A, B.key: B})
ASK_A = TargetAsk("t:a", CheckpointAsk("acme/a"))
ASK_B = TargetAsk("t:b", CheckpointAsk("acme/b"))


def _plan(*asks: TargetAsk, **options: Any) -> LockPlan:
    return plan_lock(asks, LOCK, options.get("upgrade", ()), options.get("everything", False))


def test_keeps_what_is_locked() -> None:
    plan = _plan(ASK_A, ASK_B, everything=True)
    assert (plan.asks, plan.problems) == ((), ())
    assert plan.lock(()) == LOCK


def test_asks_for_what_is_not() -> None:
    new = TargetAsk("t:new", CheckpointAsk("acme/a", "v1"))
    plan = _plan(ASK_A, new)
    assert plan.asks == (new,)
    assert plan.problems == ("t:new: acme/a@v1 isn't locked",)
    answer = replace(A, revision="v1")
    assert list(plan.lock([answer]).checkpoints) == ["acme/a@main", "acme/b@main", "acme/a@v1"]


@pytest.mark.parametrize(
    "change",
    [
        {"include": ("*.txt",)},
        {"exclude": ("*.txt",)},
        {"gguf_file": "a.gguf"},
        {"pickle": True},
        {"remote_code": True},
    ],
)
def test_locks_another_choice_at_the_same_commit(change: Any) -> None:
    ask = replace(ASK_A.ask, **change)
    plan = _plan(TargetAsk("t:a", ask))
    assert plan.asks == (TargetAsk("t:a", replace(ask, commit="a" * 40)),)
    assert plan.problems == ("t:a: acme/a@main is locked for other fields",)


def test_upgrades_by_id_or_key() -> None:
    tag = TargetAsk("t:tag", CheckpointAsk("acme/a", "v1"))
    assert _plan(ASK_A, ASK_B, upgrade=("acme/a",)).asks == (ASK_A,)
    assert _plan(ASK_A, tag, upgrade=("acme/a@main",)).asks == (ASK_A, tag)
    with pytest.raises(LockPlanError, match="Did you mean 'acme/a'"):
        _plan(ASK_A, upgrade=("acme/aa",))


def test_drops_an_entry_only_where_all_targets_are_given() -> None:
    assert _plan(ASK_A).lock(()) == LOCK
    plan = _plan(ASK_A, everything=True)
    assert plan.dropped == ("acme/b@main",)
    assert plan.problems == ("3rdparty/checkpoints.lock.json: no target asks for acme/b@main",)
    assert plan.lock(()) == CheckpointLock({A.key: A})


def test_targets_may_not_contradict_each_other() -> None:
    assert _plan(ASK_A, replace(ASK_A, address="t:again")).asks == ()
    other = TargetAsk("t:other", replace(ASK_A.ask, pickle=True, include=("*",)))
    with pytest.raises(LockPlanError) as caught:
        _plan(ASK_A, other)
    assert str(caught.value).startswith(
        "t:a and t:other: both ask for acme/a@main, with different `include` and `allow_pickle`."
    )


def test_shows_what_changed() -> None:
    files = (LockedFile("config.json", 2_000, "3" * 64), LockedFile("vocab.txt", 7, "4" * 64))
    after = replace(A, commit="b" * 40, license="apache-2.0", files=files)
    new = replace(A, repo="acme/new", files=(LockedFile("model.safetensors", 2**31, "5" * 64),))
    lines = changes_table(LOCK, CheckpointLock({A.key: after, new.key: new}))
    assert [re.split(" {2,}", line) for line in lines] == [
        ["checkpoint", "commit", "files", "size", "licence", "access"],
        [
            "acme/a@main",
            "aaaaaaaaaaaa -> bbbbbbbbbbbb",
            "2",
            "15 B -> 2.0 kB",
            "mit -> apache-2.0",
            "open",
        ],
        ["", "~ config.json (10 B -> 2.0 kB)"],
        ["", "- model.safetensors (5 B)"],
        ["", "+ vocab.txt (7 B)"],
        ["acme/b@main", "removed", "2", "15 B", "unknown", "gated (manual)"],
        ["acme/new@main", "aaaaaaaaaaaa", "1", "2.1 GB", "mit", "open"],
    ]
    assert len({line.index("  mit") for line in lines if "  mit" in line}) == 1
    assert changes_table(LOCK, LOCK) == []


def test_shows_sizes() -> None:
    sizes = (0, 999, 1_000, 1_503_300_328, 5 * 10**12)
    assert [size_text(size) for size in sizes] == ["0 B", "999 B", "1.0 kB", "1.5 GB", "5.0 TB"]
