"""From the images and the sound of `sample_inputs` to the files themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Iterable, List, Mapping, Tuple

from pants.core.target_types import FileSourceField
from pants.core.util_rules import source_files
from pants.core.util_rules.source_files import SourceFiles, SourceFilesRequest
from pants.engine.addresses import Address, Addresses, UnparsedAddressInputs
from pants.engine.fs import Digest, MergeDigests
from pants.engine.rules import Get, MultiGet, collect_rules, rule
from pants.engine.target import (
    FieldSet,
    InferDependenciesRequest,
    InferredDependencies,
    SourcesField,
    Target,
    Targets,
)
from pants.engine.unions import UnionRule
from pants.util.frozendict import FrozenDict
from pants.util.logging import LogLevel

from model_export.plugin.field_errors import SpecError, TargetError
from model_export.plugin.target_types import ExportDependenciesField, SampleInputsField
from model_export.spec import MEDIA_SUFFIXES, SAMPLE_FILES, ExportSpec


@dataclass(frozen=True)
class SampleFilesRequest:
    """The addresses that the target at `owner` names under each key of `sample_inputs`."""

    files: FrozenDict[str, Tuple[str, ...]]
    owner: Address

    @classmethod
    def of(cls, samples: Mapping[str, Iterable[str]], owner: Address) -> SampleFilesRequest:
        """What `sample_inputs` names, if anything."""
        files = {key: tuple(samples[key]) for key in SAMPLE_FILES if key in samples}
        return cls(FrozenDict(files), owner)


@dataclass(frozen=True)
class SampleFiles:
    """The files, at their paths in the repository: in the order of the addresses, then of paths."""

    digest: Digest
    paths: FrozenDict[str, Tuple[str, ...]]


@rule(desc="Read sample files", level=LogLevel.DEBUG)
async def sample_files(request: SampleFilesRequest) -> SampleFiles:
    named = [(key, address) for key, files in request.files.items() for address in files]
    # One by one: the same file may be two samples, and order is that of the field.
    targets = await MultiGet(
        Get(Targets, UnparsedAddressInputs, _addresses([address], request.owner))
        for _, address in named
    )
    for (key, _), found in zip(named, targets):
        for target in found:
            _check_target(key, target, request.owner)
    sources = await MultiGet(
        Get(SourceFiles, SourceFilesRequest([target.get(SourcesField) for target in found]))
        for found in targets
    )
    paths: Dict[str, List[str]] = {}
    for (key, _), files in zip(named, sources):
        for path in sorted(files.snapshot.files):
            _check_path(key, path, request.owner)
            paths.setdefault(key, []).append(path)
    digest = await Get(Digest, MergeDigests(files.snapshot.digest for files in sources))
    return SampleFiles(digest, FrozenDict({key: tuple(found) for key, found in paths.items()}))


def with_sample_paths(spec: ExportSpec, paths: Mapping[str, Iterable[str]]) -> Dict[str, object]:
    """The `sample_inputs` of a spec with the paths of files in place of their addresses."""
    return {**(spec.sample_inputs or {}), **{key: list(found) for key, found in paths.items()}}


def _check_target(key: str, target: Target, owner: Address) -> None:
    if not target.has_field(FileSourceField):
        raise TargetError(
            owner,
            SpecError(
                f"sample_inputs[{key!r}]",
                f"name {target.address}, a `{target.alias}` target",
                "Name a `file` or a `files` target",
            ),
        )


def _check_path(key: str, path: str, owner: Address) -> None:
    if not path.lower().endswith(MEDIA_SUFFIXES[key]):
        raise TargetError(
            owner,
            SpecError(
                f"sample_inputs[{key!r}]",
                f"hold {path}",
                f"Name files that end in {', '.join(MEDIA_SUFFIXES[key])}",
            ),
        )


def _addresses(files: Iterable[str], owner: Address) -> UnparsedAddressInputs:
    return UnparsedAddressInputs(
        files,
        owning_address=owner,
        description_of_origin=f"the `sample_inputs` field of {owner}",
    )


@dataclass(frozen=True)
class SampleInputsFieldSet(FieldSet):
    required_fields = (SampleInputsField, ExportDependenciesField)

    samples: SampleInputsField


class InferSampleFiles(InferDependenciesRequest):
    infer_from = SampleInputsFieldSet


@rule(desc="Infer the sample files of an export", level=LogLevel.DEBUG)
async def infer_sample_files(request: InferSampleFiles) -> InferredDependencies:
    fields = request.field_set
    files = SampleFilesRequest.of(fields.samples.value or {}, fields.address).files
    addresses = [address for named in files.values() for address in named]
    if not addresses:
        return InferredDependencies([])
    found = await Get(Addresses, UnparsedAddressInputs, _addresses(addresses, fields.address))
    return InferredDependencies(found)


def rules() -> Iterable[object]:
    return [
        *collect_rules(),
        *source_files.rules(),
        UnionRule(InferDependenciesRequest, InferSampleFiles),
    ]
