"""What a run of `lock-checkpoints` has to do, worked out from targets and lock alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Dict, Iterable, List, Mapping, Tuple

from model_export.checkpoint_ask import CheckpointAsk
from model_export.checkpoint_lock import LOCK_FILE, CheckpointLock, LockedCheckpoint
from model_export.plugin.field_errors import nearest


class LockPlanError(Exception):
    """Targets that contradict each other, or an id to upgrade that none of them has."""


@dataclass(frozen=True)
class TargetAsk:
    """What the target at `address` asks of its hub id."""

    address: str
    ask: CheckpointAsk


@dataclass(frozen=True)
class LockPlan:
    """`asks`: what the hub has to be asked, each with the target that asks first. `kept` and
    `dropped`: the entries that stay and go. `problems`: a line for each thing that `--check` finds.
    """

    asks: Tuple[TargetAsk, ...]
    kept: Mapping[str, LockedCheckpoint]
    dropped: Tuple[str, ...]
    problems: Tuple[str, ...]

    def lock(self, answers: Iterable[LockedCheckpoint]) -> CheckpointLock:
        """The lock once the hub has answered."""
        return CheckpointLock({**self.kept, **{answer.key: answer for answer in answers}})


def plan_lock(
    targets: Iterable[TargetAsk], lock: CheckpointLock, upgrade: Iterable[str], everything: bool
) -> LockPlan:
    """Compare what targets ask for with what is locked.

    An entry that answers its targets stays as it is, whatever its branch is by now; one that was
    made for other fields is made again at its commit; the ids in `upgrade` (`id` or `id@revision`)
    are resolved anew. With `everything` the targets are all there are, and entries that none of
    them asks for go. Raises LockPlanError.
    """
    first = _by_key(targets)
    upgraded = _upgraded(first, upgrade)
    asks: List[TargetAsk] = []
    kept: Dict[str, LockedCheckpoint] = {}
    problems: List[str] = []
    for key, target in sorted(first.items()):
        locked = lock.checkpoints.get(key)
        if locked is None:
            problems.append(f"{target.address}: {key} isn't locked")
            asks.append(target)
        elif key in upgraded:
            asks.append(target)
        elif not target.ask.answered_by(locked):
            problems.append(f"{target.address}: {key} is locked for other fields")
            asks.append(replace(target, ask=replace(target.ask, commit=locked.commit)))
        else:
            kept[key] = locked
    dropped: List[str] = []
    for key, locked in lock.checkpoints.items():
        if key in first:
            continue
        if everything:
            problems.append(f"{LOCK_FILE}: no target asks for {key}")
            dropped.append(key)
        else:
            kept[key] = locked
    return LockPlan(tuple(asks), kept, tuple(dropped), tuple(problems))


def _by_key(targets: Iterable[TargetAsk]) -> Dict[str, TargetAsk]:
    first: Dict[str, TargetAsk] = {}
    for target in sorted(targets, key=lambda target: target.address):
        known = first.setdefault(target.ask.key, target)
        if known.ask != target.ask:
            raise LockPlanError(
                f"{known.address} and {target.address}: both ask for {target.ask.key}, with "
                f"different {_differences(known.ask, target.ask)}. Give them the same, or one of "
                "them another `revision` (a branch and its commit are two)."
            )
    return first


def _differences(one: CheckpointAsk, other: CheckpointAsk) -> str:
    fields = {
        "include": one.include == other.include,
        "exclude": one.exclude == other.exclude,
        "gguf_file": one.gguf_file == other.gguf_file,
        "allow_pickle": one.pickle == other.pickle,
        "trust_remote_code": one.remote_code == other.remote_code,
        "adapter": one.adapter == other.adapter,
    }
    return " and ".join(f"`{name}`" for name, same in fields.items() if not same)


def _upgraded(first: Mapping[str, TargetAsk], upgrade: Iterable[str]) -> List[str]:
    keys: List[str] = []
    for name in upgrade:
        found = [key for key, target in first.items() if name in (key, target.ask.repo)]
        if not found:
            known = sorted({target.ask.repo for target in first.values()})
            raise LockPlanError(
                f"--upgrade={name}: none of the given targets has that id. {nearest(name, known)}."
            )
        keys.extend(found)
    return keys
