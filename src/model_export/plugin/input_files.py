"""From `inputs_from` to the file itself, with what it imports of the repository."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Iterable, Optional, Tuple

from pants.backend.python.target_types import PythonResolveField, PythonSourceField
from pants.backend.python.util_rules import python_sources
from pants.backend.python.util_rules.python_sources import (
    PythonSourceFiles,
    PythonSourceFilesRequest,
)
from pants.core.target_types import FileSourceField
from pants.engine.addresses import Address, Addresses, UnparsedAddressInputs
from pants.engine.fs import Digest, MergeDigests, PathGlobs, Paths
from pants.engine.internals.graph import Owners, OwnersRequest
from pants.engine.rules import Get, MultiGet, collect_rules, rule
from pants.engine.target import (
    FieldSet,
    HydratedSources,
    HydrateSourcesRequest,
    InferDependenciesRequest,
    InferredDependencies,
    SourcesField,
    Target,
    Targets,
    TransitiveTargets,
    TransitiveTargetsRequest,
)
from pants.engine.unions import UnionRule
from pants.source.source_root import SourceRoot, SourceRootRequest
from pants.util.logging import LogLevel

from model_export.plugin.field_errors import SpecError, TargetError, nearest
from model_export.plugin.inputs_field import InputsFromField
from model_export.plugin.references import inputs_path
from model_export.plugin.target_types import ExportDependenciesField, ExportResolveField
from model_export.spec import PROCESS_FOLDERS

_FIELD = "inputs_from"


@dataclass(frozen=True)
class InputsFileRequest:
    """What the target at `owner`, which is built in `resolve`, has in `inputs_from`."""

    value: str
    resolve: Optional[str]
    owner: Address


@dataclass(frozen=True)
class _AddressedInputs:
    value: str
    owner: Address


@dataclass(frozen=True)
class InputsOwner:
    """The path of the file, and the target that owns it, if one does."""

    path: str
    address: Optional[Address]


@dataclass(frozen=True)
class InputsFile:
    """The file and what it imports of the repository, each at its path there.

    `source_roots` are the folders that its imports start from.
    """

    path: str
    digest: Digest
    source_roots: Tuple[str, ...]


@rule(desc="Find the sample inputs of an export", level=LogLevel.DEBUG)
async def inputs_owner(request: InputsFileRequest) -> InputsOwner:
    relative = inputs_path(request.value)
    if relative is None:
        return await Get(InputsOwner, _AddressedInputs(request.value, request.owner))
    path = os.path.join(request.owner.spec_path, relative)
    folder = os.path.dirname(path)
    found = await Get(Paths, PathGlobs([path, os.path.join(folder, "*.py")]))
    if path not in found.files:
        known = [os.path.relpath(file, request.owner.spec_path or ".") for file in found.files]
        raise TargetError(
            request.owner,
            SpecError(
                _FIELD,
                f"is {request.value!r}, and there is no file {path}",
                nearest(relative, known),
            ),
        )
    owners = await Get(Owners, OwnersRequest((path,)))
    targets = await Get(Targets, Addresses(owners))
    return InputsOwner(path, _chosen(targets, request.resolve))


def _chosen(targets: Iterable[Target], resolve: Optional[str]) -> Optional[Address]:
    """Of those that own a Python file, one of the export's resolve if there is one."""
    owning = [target for target in targets if target.has_field(PythonSourceField)]
    owning.sort(
        key=lambda target: (
            target.has_field(PythonResolveField) and target[PythonResolveField].value != resolve,
            target.address,
        )
    )
    return owning[0].address if owning else None


@rule(desc="Find the target with the sample inputs of an export", level=LogLevel.DEBUG)
async def addressed_inputs(request: _AddressedInputs) -> InputsOwner:
    addresses = await Get(
        Addresses,
        UnparsedAddressInputs(
            [request.value],
            owning_address=request.owner,
            description_of_origin=f"the `{_FIELD}` field of {request.owner}",
        ),
    )
    targets = await Get(Targets, Addresses, addresses)
    usable = [t for t in targets if t.has_field(PythonSourceField) or t.has_field(FileSourceField)]
    sources = await MultiGet(
        Get(HydratedSources, HydrateSourcesRequest(target[SourcesField])) for target in usable
    )
    files = [
        (path, target.address)
        for target, hydrated in zip(usable, sources)
        for path in hydrated.snapshot.files
        if path.endswith(".py")
    ]
    if len(files) != 1 or len(usable) != len(targets):
        listed = ", ".join(sorted(path for path, _ in files)) or "no Python file"
        raise TargetError(
            request.owner,
            SpecError(
                _FIELD,
                f"is {request.value!r}, which has {listed}",
                "Name a `python_source` or `file` target of one Python file",
            ),
        )
    return InputsOwner(*files[0])


@rule(desc="Read the sample inputs of an export", level=LogLevel.DEBUG)
async def inputs_file(request: InputsFileRequest) -> InputsFile:
    found = await Get(InputsOwner, InputsFileRequest, request)
    top = found.path.split("/")[0]
    if top in PROCESS_FOLDERS:
        raise TargetError(
            request.owner,
            SpecError(
                _FIELD,
                f"is {found.path}, and the export process has a folder {top!r} of its own",
                "Move it into another folder",
            ),
        )
    own, root = await MultiGet(
        Get(Digest, PathGlobs([found.path])),
        Get(SourceRoot, SourceRootRequest, SourceRootRequest.for_file(found.path)),
    )
    if found.address is None:
        return InputsFile(found.path, own, (root.path,))
    closure = await Get(TransitiveTargets, TransitiveTargetsRequest([found.address]))
    sources = await Get(
        PythonSourceFiles,
        PythonSourceFilesRequest(closure.closure, include_resources=True, include_files=True),
    )
    digest = await Get(Digest, MergeDigests((own, sources.source_files.snapshot.digest)))
    roots = sorted({root.path, *sources.source_roots})
    return InputsFile(found.path, digest, tuple(roots))


@dataclass(frozen=True)
class InputsFieldSet(FieldSet):
    required_fields = (InputsFromField, ExportDependenciesField)

    inputs: InputsFromField
    resolve: ExportResolveField


class InferInputs(InferDependenciesRequest):
    infer_from = InputsFieldSet


@rule(desc="Infer the sample inputs of an export", level=LogLevel.DEBUG)
async def infer_inputs(request: InferInputs) -> InferredDependencies:
    fields = request.field_set
    if fields.inputs.value is None:
        return InferredDependencies([])
    found = await Get(
        InputsOwner,
        InputsFileRequest(fields.inputs.value, fields.resolve.value, fields.address),
    )
    return InferredDependencies([] if found.address is None else [found.address])


def rules() -> Iterable[object]:
    return [
        *collect_rules(),
        *python_sources.rules(),
        UnionRule(InferDependenciesRequest, InferInputs),
    ]
