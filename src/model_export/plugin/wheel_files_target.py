"""The target `wheel_files`: files of a locked wheel, for the targets that depend on it."""

from __future__ import annotations

import os
from typing import Iterable

from pants.core.target_types import FileSourceField
from pants.engine.fs import AddPrefix, Snapshot
from pants.engine.rules import Get, collect_rules, rule
from pants.engine.target import (
    COMMON_TARGET_FIELDS,
    Dependencies,
    GeneratedSources,
    GenerateSourcesRequest,
    MultipleSourcesField,
    StringField,
    Target,
)
from pants.engine.unions import UnionRule
from pants.util.logging import LogLevel
from pants.util.strutil import help_text

from model_export.plugin.checkpoint_types import PackageField, WheelPathField, WheelResolveField
from model_export.plugin.wheel_files import LockedWheelFilesRequest, WheelFiles


class WheelFilesSourcesField(MultipleSourcesField):
    """Holds no file: the anchor of the rule that hands the wheel's files to dependents."""

    alias = "_sources"
    uses_source_roots = False
    expected_num_files = 0
    help = "Not for BUILD files: stands for the wheel's files where a target depends on them."


class WheelFilesPackageField(PackageField):
    help = "The distribution, as its lock names it: `executorch`."


class WheelFilesPathField(WheelPathField):
    help = "What to take out of the wheel: a folder, or one file."


class WheelFilesResolveField(StringField):
    alias = WheelResolveField.alias
    required = True
    value: str
    help = WheelResolveField.help


class WheelFilesTarget(Target):
    alias = "wheel_files"
    core_fields = (
        *COMMON_TARGET_FIELDS,
        Dependencies,
        WheelFilesSourcesField,
        WheelFilesPackageField,
        WheelFilesPathField,
        WheelFilesResolveField,
    )
    help = help_text(
        """
        Files that a locked wheel carries, such as a C++ library. A target that depends on this one
        finds them in a folder named after it, below the folder of the BUILD file.
        """
    )


class GenerateWheelFiles(GenerateSourcesRequest):
    input = WheelFilesSourcesField
    output = FileSourceField
    exportable = False


@rule(desc="Take files out of a wheel for a dependent", level=LogLevel.DEBUG)
async def files_of_wheel(request: GenerateWheelFiles) -> GeneratedSources:
    target = request.protocol_target
    files = await Get(
        WheelFiles,
        LockedWheelFilesRequest(
            target[WheelFilesPackageField].value,
            target[WheelFilesPathField].value,
            target[WheelFilesResolveField].value,
            target.address,
        ),
    )
    path = os.path.join(target.address.spec_path, target.address.target_name)
    return GeneratedSources(await Get(Snapshot, AddPrefix(files.digest, path)))


def rules() -> Iterable[object]:
    return [*collect_rules(), UnionRule(GenerateSourcesRequest, GenerateWheelFiles)]
