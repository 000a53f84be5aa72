"""Takes files out of one locked wheel: verified, without dependencies, nothing imported."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Iterable, Tuple

from pants.backend.python.subsystems.setup import PythonSetup
from pants.backend.python.target_types import PexLayout
from pants.backend.python.util_rules.interpreter_constraints import InterpreterConstraints
from pants.backend.python.util_rules.pex import BuildPexResult, PexRequest
from pants.backend.python.util_rules.pex_environment import PythonExecutable
from pants.engine.addresses import Address
from pants.engine.fs import (
    CreateDigest,
    Digest,
    DigestSubset,
    FileContent,
    PathGlobs,
    RemovePrefix,
    Snapshot,
)
from pants.engine.rules import Get, collect_rules, rule
from pants.util.logging import LogLevel

from model_export.plugin.checkpoint_files import in_wheel_error
from model_export.plugin.field_errors import SpecError, TargetError
from model_export.plugin.hash_lock import LockedRequirement, find_locked
from model_export.plugin.locked_resolves import LockedResolve, LockedResolveRequest

_LOCK = "wheel.lock.txt"
_PEX = "wheel"


@dataclass(frozen=True)
class WheelFilesRequest:
    """`path` of the package that `entries` pin: a folder's contents, or one file."""

    entries: Tuple[LockedRequirement, ...]
    path: str
    resolve: str
    address: Address


@dataclass(frozen=True)
class LockedWheelFilesRequest:
    """`path` of `package`, as the lock of `resolve` pins it: fields of the target at `address`."""

    package: str
    path: str
    resolve: str
    address: Address


@dataclass(frozen=True)
class WheelFiles:
    """The folder's files rooted at the folder, or the file alone; `wheel` as `name==version`."""

    digest: Digest
    wheel: str


@rule(desc="Take files out of a wheel", level=LogLevel.DEBUG)
async def wheel_files(request: WheelFilesRequest, python_setup: PythonSetup) -> WheelFiles:
    # A lock of this package's lines alone: another package's new version changes nothing here.
    lock = await Get(
        Digest,
        CreateDigest(
            [FileContent(_LOCK, "".join(entry.text() for entry in request.entries).encode())]
        ),
    )
    python = await Get(
        PythonExecutable,
        InterpreterConstraints(
            python_setup.resolves_to_interpreter_constraints.get(
                request.resolve, python_setup.interpreter_constraints
            )
        ),
    )
    pex = await Get(
        BuildPexResult,
        PexRequest(
            output_filename=_PEX,
            internal_only=False,
            layout=PexLayout.LOOSE,
            python=python,
            additional_inputs=lock,
            additional_args=("--requirement", _LOCK, "--no-transitive"),
            description=f"Install {request.entries[0].requirement} without its dependencies",
        ),
    )
    installed = await Get(Snapshot, DigestSubset(pex.digest, PathGlobs([f"{_PEX}/.deps/*/**"])))
    wheel = "/".join(installed.files[0].split("/")[:3])
    contents = [file[len(wheel) + 1 :] for file in installed.files]
    path = request.path
    if path in contents:
        folder, globs = os.path.dirname(path), [path]
    elif any(file.startswith(f"{path}/") for file in contents):
        folder, globs = path, [f"{path}/**"]
    else:
        raise TargetError(request.address, in_wheel_error(path, contents))
    subset = await Get(
        Digest,
        DigestSubset(installed.digest, PathGlobs([f"{wheel}/{glob}" for glob in globs])),
    )
    prefix = os.path.join(wheel, folder) if folder else wheel
    pinned = request.entries[0]
    return WheelFiles(
        await Get(Digest, RemovePrefix(subset, prefix)), f"{pinned.name}=={pinned.version}"
    )


@rule(desc="Find a wheel in its lock", level=LogLevel.DEBUG)
async def locked_wheel_files(request: LockedWheelFilesRequest) -> WheelFiles:
    resolve, address = request.resolve, request.address
    lock = await Get(LockedResolve, LockedResolveRequest(resolve, address))
    if not lock.requirements:
        error = SpecError(
            "resolve",
            f"is {resolve!r}, whose lock is PEX's own, of which Pants can't take one package",
            "Compile a requirements file: `uv pip compile --no-deps --generate-hashes`",
        )
        raise TargetError(address, error)
    try:
        entries = find_locked(lock.requirements, request.package, resolve)
    except SpecError as error:
        raise TargetError(address, error) from error
    return await Get(WheelFiles, WheelFilesRequest(entries, request.path, resolve, address))


def rules() -> Iterable[object]:
    return collect_rules()
