"""The `lock-checkpoints` goal: pins the hub ids of targets in `3rdparty/checkpoints.lock.json`."""

from __future__ import annotations

import os
import uuid
from typing import Iterable, List, Mapping

from pants.base.specs import RawSpecsWithoutFileOwners, RecursiveGlobSpec, Specs
from pants.engine.addresses import Address
from pants.engine.console import Console
from pants.engine.fs import CreateDigest, Digest, DigestContents, FileContent, PathGlobs, Workspace
from pants.engine.goal import Goal, GoalSubsystem
from pants.engine.rules import Get, MultiGet, collect_rules, goal_rule
from pants.engine.target import Targets
from pants.option.option_types import BoolOption, StrListOption

from model_export.checkpoint_lock import LOCK_FILE, CheckpointLock, CheckpointLockError
from model_export.plugin.adapter_field import adapter_ask
from model_export.plugin.hub_fields import hub_ask
from model_export.plugin.hub_locks import HubLock, HubLockRequest
from model_export.plugin.lock_plan import LockPlan, LockPlanError, TargetAsk, plan_lock
from model_export.plugin.lock_table import changes_table, size_text
from model_export.plugin.processes import ProcessFailed
from model_export.plugin.target_types import ModelField


class LockCheckpointsSubsystem(GoalSubsystem):
    name = "lock-checkpoints"
    help = (
        f"Pin the Hugging Face ids of `export_model` targets in {LOCK_FILE}: the commit, and size "
        "and sha256 of every file that an export needs. What is locked stays as it is."
    )

    check = BoolOption(
        default=False,
        help="Change nothing and ask nobody: say what isn't locked as its target asks, and fail.",
    )
    upgrade = StrListOption(
        help="Resolve the revision of this id (or `id@revision`) anew. May be given several times.",
    )


class LockCheckpoints(Goal):
    subsystem_cls = LockCheckpointsSubsystem
    environment_behavior = Goal.EnvironmentBehavior.LOCAL_ONLY


@goal_rule
async def lock_checkpoints(
    console: Console,
    workspace: Workspace,
    specs: Specs,
    options: LockCheckpointsSubsystem,
) -> LockCheckpoints:
    if not specs:
        console.print_stderr("No targets are given. Lock those of all: ./pants lock-checkpoints ::")
        return LockCheckpoints(exit_code=1)
    # Not as parameters: with Specs and Targets both there, Pants 2.17.1 finds no rule graph.
    targets = await Get(Targets, Specs, specs)
    found = await Get(DigestContents, PathGlobs([LOCK_FILE]))
    written = found[0].content if found else b""
    everything = not specs.ignores and any(
        glob.directory == "" for glob in specs.includes.recursive_globs
    )
    if everything:  # But for those that --tag or --filter leaves out.
        known = await Get(
            Targets,
            RawSpecsWithoutFileOwners(
                recursive_globs=(RecursiveGlobSpec(""),),
                description_of_origin="the `lock-checkpoints` goal",
            ),
        )
        everything = {target.address for target in known} <= {item.address for item in targets}
    asks: List[TargetAsk] = []
    addresses: Mapping[str, Address] = {target.address.spec: target.address for target in targets}
    for target in targets:
        if target.has_field(ModelField):
            for ask in (hub_ask(target, target[ModelField].value), adapter_ask(target)):
                if ask is not None:
                    asks.append(TargetAsk(target.address.spec, ask))
    try:
        before = CheckpointLock.from_json(written) if written else CheckpointLock({})
        plan = plan_lock(asks, before, options.upgrade, everything)
    except (CheckpointLockError, LockPlanError) as error:
        console.print_stderr(str(error))
        return LockCheckpoints(exit_code=1)
    if options.check:
        return _checked(console, plan, before, written)
    run = uuid.uuid4().hex
    try:
        answers = await MultiGet(
            Get(HubLock, HubLockRequest(asked.ask, run, addresses[asked.address]))
            for asked in plan.asks
        )
    except ProcessFailed as error:
        console.print_stderr(str(error))
        return LockCheckpoints(exit_code=1)
    after = plan.lock(answer.checkpoint for answer in answers)
    content = after.to_json().encode()
    for answer in answers:
        for note in answer.notes:
            console.print_stderr(note)
    if content == written or (not written and not after.checkpoints):
        console.print_stdout(_unchanged(after))
        return LockCheckpoints(exit_code=0)
    # In its own folder, as `write_digest` takes it: other files of 3rdparty/ stay.
    folder, name = os.path.split(LOCK_FILE)
    workspace.write_digest(
        await Get(Digest, CreateDigest([FileContent(name, content)])), path_prefix=folder
    )
    for line in changes_table(before, after):
        console.print_stdout(line)
    console.print_stdout(f"Wrote {LOCK_FILE}")
    return LockCheckpoints(exit_code=0)


def _checked(
    console: Console, plan: LockPlan, lock: CheckpointLock, written: bytes
) -> LockCheckpoints:
    problems = list(plan.problems)
    if written and lock.to_json().encode() != written:
        problems.append(f"{LOCK_FILE}: isn't as lock-checkpoints writes it")
    for problem in problems:
        console.print_stderr(problem)
    if problems:
        console.print_stderr("Run ./pants lock-checkpoints with the same targets.")
        return LockCheckpoints(exit_code=1)
    console.print_stdout(_unchanged(lock))
    return LockCheckpoints(exit_code=0)


def _unchanged(lock: CheckpointLock) -> str:
    count = len(lock.checkpoints)
    if not count:
        return "No hub id to lock."
    size = size_text(sum(checkpoint.size for checkpoint in lock.checkpoints.values()))
    return f"{LOCK_FILE} is up to date: {count} checkpoint{'s' if count > 1 else ''}, {size}"


def rules() -> Iterable[object]:
    return collect_rules()
