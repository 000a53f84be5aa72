"""The resolve of a process: known, hash-locked, and installed as a venv."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from dataclasses import dataclass
from pathlib import PurePath
from typing import Iterable, Optional, Tuple

from pants.backend.python.subsystems.setup import PythonSetup
from pants.backend.python.target_types import PexLayout
from pants.backend.python.util_rules.interpreter_constraints import InterpreterConstraints
from pants.backend.python.util_rules.pex import PexRequest, VenvPex, VenvPexRequest
from pants.backend.python.util_rules.pex_environment import PexEnvironment
from pants.backend.python.util_rules.pex_requirements import (
    EntireLockfile,
    Lockfile,
    Resolve,
    is_probably_pex_json_lockfile,
)
from pants.engine.addresses import Address
from pants.engine.engine_aware import EngineAwareParameter
from pants.engine.fs import DigestContents, PathGlobs
from pants.engine.rules import Get, collect_rules, rule
from pants.util.frozendict import FrozenDict
from pants.util.logging import LogLevel
from pants.util.strutil import path_safe

from model_export.plugin.field_errors import SpecError, TargetError, nearest
from model_export.plugin.hash_lock import LockedRequirement, LockError, parse_hash_lock
from model_export.spec import Toolchain

# The whole environment of our processes; the export process fixes the rest itself. A PEX venv's
# shim would else export the LANG and LC_ALL of whoever started Pants over it (2.17.1). Bytecode may
# be written: the venv lies in a cache that outlives the process, and compiling all of torch and
# transformers anew costs each export 9 s.
PROCESS_ENVIRONMENT = FrozenDict(
    {
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "PYTHONHASHSEED": "0",
        "TZ": "UTC",
    }
)
_PROCESS_PATH = ("/usr/bin", "/bin")
# Beside a lock, where this repository has it (docs/locks.md).
_ASKED = "requirements.in"
_LOCKING = re.compile(r"^#\s*(Lock it: .+)$", re.MULTILINE)


@dataclass(frozen=True)
class LockedResolveRequest(EngineAwareParameter):
    """The resolve that `field` of the target at `address` names."""

    resolve: str
    address: Address
    field: str = "resolve"

    def debug_hint(self) -> str:
        return self.resolve


def locking_command(requirements_in: str) -> Optional[str]:
    """What a `requirements.in` says of its own locking, in a comment "# Lock it: COMMAND"."""
    match = _LOCKING.search(requirements_in)
    return match[1].strip() if match else None


@dataclass(frozen=True)
class LockedResolve:
    """A resolve whose lock pins every byte; no `requirements` if the lock is PEX's own JSON."""

    toolchain: Toolchain
    lock_path: str
    requirements: Tuple[LockedRequirement, ...]


@rule(desc="Check the lock of a resolve", level=LogLevel.DEBUG)
async def locked_resolve(request: LockedResolveRequest, python_setup: PythonSetup) -> LockedResolve:
    resolves = python_setup.resolves
    path = resolves.get(request.resolve)
    if path is None:
        raise TargetError(
            request.address,
            SpecError(
                request.field,
                f"is {request.resolve!r}, which is no resolve",
                nearest(request.resolve, resolves) + " ([python].resolves in pants.toml)",
            ),
        )
    contents = await Get(DigestContents, PathGlobs([path]))
    if not contents:
        asked = await Get(DigestContents, PathGlobs([str(PurePath(path).parent / _ASKED)]))
        raise TargetError(
            request.address,
            SpecError(
                request.field,
                f"is {request.resolve!r}, whose lock {path} doesn't exist",
                locking_command(asked[0].content.decode() if asked else "")
                or "Compile it: `uv pip compile --universal --generate-hashes`",
            ),
        )
    lock = contents[0].content
    toolchain = Toolchain(request.resolve, hashlib.sha256(lock).hexdigest())
    if is_probably_pex_json_lockfile(lock):  # It has a hash for each artifact, always.
        return LockedResolve(toolchain, path, ())
    try:
        return LockedResolve(toolchain, path, parse_hash_lock(path, lock.decode()))
    except LockError as error:
        raise TargetError(
            request.address,
            SpecError(
                request.field,
                f"is {request.resolve!r}, which isn't locked: {error.problem}",
                error.remedy,
            ),
        ) from error


@dataclass(frozen=True)
class ProcessVenvRequest:
    """The venv of a resolve that a `LockedResolveRequest` has checked."""

    resolve: str


@rule(desc="Install the resolve of an export", level=LogLevel.DEBUG)
async def process_venv(
    request: ProcessVenvRequest, pex_environment: PexEnvironment, python_setup: PythonSetup
) -> VenvPex:
    lockfile = await Get(Lockfile, Resolve(request.resolve, use_entire_lockfile=True))
    constraints = python_setup.resolves_to_interpreter_constraints.get(
        request.resolve, python_setup.interpreter_constraints
    )
    environment = dataclasses.replace(
        pex_environment, path=_PROCESS_PATH, subprocess_environment_dict=PROCESS_ENVIRONMENT
    )
    return await Get(
        VenvPex,
        VenvPexRequest(
            # The request that `python_tests` of this resolve make (`get_repository_pex`, Pants
            # 2.17.1). The installed wheels are shared; the PEX isn't: as a venv it is built with
            # `--venv --seed`, in a process of its own.
            PexRequest(
                output_filename=f"{path_safe(request.resolve)}_lockfile.pex",
                internal_only=True,
                requirements=EntireLockfile(lockfile),
                interpreter_constraints=InterpreterConstraints(constraints),
                layout=PexLayout.PACKED,
                description=f"Install the resolve {request.resolve}",
            ),
            environment.in_sandbox(working_directory=None),
        ),
    )


def rules() -> Iterable[object]:
    return collect_rules()
