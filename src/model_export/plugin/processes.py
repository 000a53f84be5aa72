"""Runs one of our modules in the venv of a resolve, and turns its failure into one line."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Iterable, Optional, Tuple

from pants.backend.python.util_rules.pex import VenvPex
from pants.backend.python.util_rules.pex_environment import PexEnvironment
from pants.engine.addresses import Address
from pants.engine.fs import Digest, DigestSubset, MergeDigests, PathGlobs, RemovePrefix
from pants.engine.process import (
    FallibleProcessResult,
    Process,
    ProcessCacheScope,
    ProcessResultMetadata,
)
from pants.engine.rules import Get, MultiGet, collect_rules, rule
from pants.util.frozendict import FrozenDict
from pants.util.logging import LogLevel

from model_export.plugin.locked_resolves import PROCESS_ENVIRONMENT, ProcessVenvRequest

# An export takes minutes: ask a remote cache first, and wait this long for its answer.
_REMOTE_CACHE_WAIT_MILLIS = 120_000
_STDERR_LINES = 40
# Pants 2.17.1 ends a process after its timeout with SIGTERM and adds a line to its stderr.
_TIMEOUT_LINE = "Exceeded timeout of "


class ProcessFailed(Exception):
    """A process of ours that failed: the line it ended with, then the end of its stderr."""

    def __init__(
        self,
        address: Address,
        description: str,
        exit_code: int,
        stderr: str,
        metadata: ProcessResultMetadata,
    ) -> None:
        lines = [line for line in stderr.splitlines() if line.strip()]
        last = lines[-1].strip() if lines else f"{description}: exit code {exit_code}, no message"
        if exit_code < 0 or exit_code > 128:
            number = -exit_code if exit_code < 0 else exit_code - 128
            last = (
                f"The process was ended by signal {number} (9: out of memory?). "
                f"Its last line: {last}"
            )
        tail = "\n".join(lines[-_STDERR_LINES:-1])
        super().__init__(f"{address}: {last}" + (f"\n\n{tail}" if tail else ""))
        self.metadata = metadata


class ProcessTimedOut(ProcessFailed):
    """A process of ours that Pants ended because it took longer than its target allows."""

    def __init__(
        self, request: ModuleProcess, stderr: str, metadata: ProcessResultMetadata
    ) -> None:
        kept = [line for line in stderr.splitlines() if _TIMEOUT_LINE not in line]
        kept.append(
            f"The process took longer than {request.timeout_seconds} s and was ended. Raise the "
            "target's `timeout`, or [test].timeout_maximum where that is lower."
        )
        super().__init__(request.address, request.description, 1, "\n".join(kept), metadata)


# Pants runs as many processes as there are CPUs, and torch takes as many threads in each. OpenMP's
# threads wait for each other at work by default: two such processes on two CPUs ran a decoder four
# times as slowly (torch 2.12.0, libgomp).
_SHARED_CPUS = {"OMP_WAIT_POLICY": "PASSIVE"}


@dataclass(frozen=True)
class ModuleProcess:
    """`python -m module argv` in the venv of `resolve`; leaves the folders `outputs`.

    `description` and `address` are for people: the cache key of the process has neither. `caches`
    are named caches, each with the path at which the process finds it.
    """

    module: str
    argv: Tuple[str, ...]
    resolve: str
    inputs: Tuple[Digest, ...]
    outputs: Tuple[str, ...]
    description: str
    address: Address
    timeout_seconds: Optional[int] = None
    cache_scope: ProcessCacheScope = ProcessCacheScope.SUCCESSFUL
    caches: FrozenDict[str, str] = field(default_factory=FrozenDict)


@dataclass(frozen=True)
class ModuleOutput:
    """What a process left in each of its output folders, rooted there."""

    folders: FrozenDict[str, Digest]
    metadata: ProcessResultMetadata = field(compare=False)


@rule(desc="Run a process of model-export", level=LogLevel.DEBUG)
async def run_module(request: ModuleProcess, pex_environment: PexEnvironment) -> ModuleOutput:
    venv = await Get(VenvPex, ProcessVenvRequest(request.resolve))
    inputs = await Get(Digest, MergeDigests((venv.digest, *request.inputs)))
    caches = pex_environment.in_sandbox(working_directory=None).append_only_caches
    result = await Get(
        FallibleProcessResult,
        Process(
            # The venv's python and not its `pex` script, which drops PYTHONHASHSEED (`-E`).
            argv=(venv.python.argv0, "-m", request.module, *request.argv),
            description=request.description,
            level=LogLevel.INFO,
            input_digest=inputs,
            env=FrozenDict({**PROCESS_ENVIRONMENT, **_SHARED_CPUS}),
            append_only_caches=FrozenDict(
                {**caches, **(venv.append_only_caches or {}), **request.caches}
            ),
            output_directories=request.outputs,
            timeout_seconds=request.timeout_seconds,
            cache_scope=request.cache_scope,
            remote_cache_speculation_delay_millis=_REMOTE_CACHE_WAIT_MILLIS,
        ),
    )
    stderr = result.stderr.decode(errors="replace")
    if request.timeout_seconds is not None and _TIMEOUT_LINE in stderr:
        raise ProcessTimedOut(request, stderr, result.metadata)
    if result.exit_code != 0:
        raise ProcessFailed(
            request.address, request.description, result.exit_code, stderr, result.metadata
        )
    subsets = await MultiGet(
        Get(Digest, DigestSubset(result.output_digest, PathGlobs([f"{output}/**"])))
        for output in request.outputs
    )
    folders = await MultiGet(
        Get(Digest, RemovePrefix(subset, output))
        for subset, output in zip(subsets, request.outputs)
    )
    return ModuleOutput(FrozenDict(zip(request.outputs, folders)), result.metadata)


def rules() -> Iterable[object]:
    return collect_rules()
