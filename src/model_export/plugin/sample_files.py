"""From the images and the sound of `sample_inputs` to the files themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Iterable, List, Mapping, Tuple

from pants.engine.addresses import Address, Addresses, UnparsedAddressInputs
from pants.engine.fs import Digest, MergeDigests
from pants.engine.rules import Get, MultiGet, collect_rules, rule
from pants.engine.target import FieldSet, InferDependenciesRequest, InferredDependencies
from pants.engine.unions import UnionRule
from pants.util.frozendict import FrozenDict
from pants.util.logging import LogLevel

from model_export.plugin.named_files import NamedFiles, NamedFilesRequest
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

    def named(self, key: str, addresses: Tuple[str, ...]) -> NamedFilesRequest:
        """Some of the files under a key."""
        field = f"sample_inputs[{key!r}]"
        return NamedFilesRequest(addresses, field, MEDIA_SUFFIXES[key], self.owner)


@dataclass(frozen=True)
class SampleFiles:
    """The files, at their paths in the repository: in the order of the addresses, then of paths."""

    digest: Digest
    paths: FrozenDict[str, Tuple[str, ...]]


@rule(desc="Read sample files", level=LogLevel.DEBUG)
async def sample_files(request: SampleFilesRequest) -> SampleFiles:
    named = [(key, address) for key, files in request.files.items() for address in files]
    # One by one: the same file may be two samples, and order is that of the field.
    found = await MultiGet(
        Get(NamedFiles, NamedFilesRequest, request.named(key, (address,))) for key, address in named
    )
    paths: Dict[str, List[str]] = {}
    for (key, _), files in zip(named, found):
        paths.setdefault(key, []).extend(files.paths)
    digest = await Get(Digest, MergeDigests(files.digest for files in found))
    return SampleFiles(digest, FrozenDict({key: tuple(names) for key, names in paths.items()}))


def with_sample_paths(spec: ExportSpec, paths: Mapping[str, Iterable[str]]) -> Dict[str, object]:
    """The `sample_inputs` of a spec with the paths of files in place of their addresses."""
    return {**(spec.sample_inputs or {}), **{key: list(found) for key, found in paths.items()}}


@dataclass(frozen=True)
class SampleInputsFieldSet(FieldSet):
    required_fields = (SampleInputsField, ExportDependenciesField)

    samples: SampleInputsField


class InferSampleFiles(InferDependenciesRequest):
    infer_from = SampleInputsFieldSet


@rule(desc="Infer the sample files of an export", level=LogLevel.DEBUG)
async def infer_sample_files(request: InferSampleFiles) -> InferredDependencies:
    fields = request.field_set
    samples = SampleFilesRequest.of(fields.samples.value or {}, fields.address)
    found = await MultiGet(
        Get(Addresses, UnparsedAddressInputs, samples.named(key, files).unparsed())
        for key, files in samples.files.items()
    )
    return InferredDependencies([address for addresses in found for address in addresses])


def rules() -> Iterable[object]:
    return [*collect_rules(), UnionRule(InferDependenciesRequest, InferSampleFiles)]
