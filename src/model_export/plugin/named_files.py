"""From the addresses in a field to the files of `file` and `files` targets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterable, Tuple

from pants.core.target_types import FileSourceField
from pants.core.util_rules import source_files
from pants.core.util_rules.source_files import SourceFiles, SourceFilesRequest
from pants.engine.addresses import Address, Addresses, UnparsedAddressInputs
from pants.engine.fs import Digest
from pants.engine.rules import Get, collect_rules, rule
from pants.engine.target import SourcesField, Targets
from pants.util.logging import LogLevel

from model_export.plugin.field_errors import SpecError, TargetError


@dataclass(frozen=True)
class NamedFilesRequest:
    """What `field` of the target at `owner` names; `suffixes` are in lower case, names in any."""

    addresses: Tuple[str, ...]
    field: str
    suffixes: Tuple[str, ...]
    owner: Address

    def unparsed(self) -> UnparsedAddressInputs:
        """The addresses, for whoever needs no files."""
        return UnparsedAddressInputs(
            self.addresses,
            owning_address=self.owner,
            description_of_origin=f"the `{self.field}` field of {self.owner}",
        )


@dataclass(frozen=True)
class NamedFiles:
    """The files, at their paths in the repository and in the order of these."""

    digest: Digest
    paths: Tuple[str, ...]


@rule(desc="Read files that a field names", level=LogLevel.DEBUG)
async def named_files(request: NamedFilesRequest) -> NamedFiles:
    addresses = await Get(Addresses, UnparsedAddressInputs, request.unparsed())
    targets = await Get(Targets, Addresses, addresses)
    for target in targets:
        if not target.has_field(FileSourceField):
            raise TargetError(
                request.owner,
                SpecError(
                    request.field,
                    f"name {target.address}, a `{target.alias}` target",
                    "Name a `file` or a `files` target",
                ),
            )
    sources = await Get(
        SourceFiles, SourceFilesRequest([target.get(SourcesField) for target in targets])
    )
    paths = tuple(sorted(sources.snapshot.files))
    for path in paths:
        if not path.lower().endswith(request.suffixes):
            raise TargetError(
                request.owner,
                SpecError(
                    request.field,
                    f"hold {path}",
                    f"Name files that end in {', '.join(request.suffixes)}",
                ),
            )
    return NamedFiles(sources.snapshot.digest, paths)


def rules() -> Iterable[object]:
    return [*collect_rules(), *source_files.rules()]
