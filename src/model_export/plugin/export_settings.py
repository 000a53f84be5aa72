"""What an `export_model` target exports with: its own fields, and its checkpoint's recipe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Iterable, Optional

from pants.engine.addresses import Address
from pants.engine.engine_aware import EngineAwareParameter
from pants.engine.fs import (
    CreateDigest,
    Digest,
    DigestContents,
    DigestEntries,
    FileEntry,
)
from pants.engine.rules import Get, collect_rules, rule
from pants.engine.target import WrappedTarget, WrappedTargetRequest
from pants.util.logging import LogLevel

from model_export.manifest import RecipeRecord
from model_export.plugin.checkpoint_folders import CheckpointFolder
from model_export.plugin.export_spec import export_spec, target_settings
from model_export.plugin.field_errors import SpecError, TargetError
from model_export.plugin.model_checkpoints import ModelCheckpointRequest
from model_export.plugin.recipes import (
    RECIPE_PLACES,
    Recipe,
    check_recipe_size,
    find_recipe,
    merge,
)
from model_export.plugin.target_types import (
    RecipeField,
    SkipVerifyField,
    ToleranceField,
)
from model_export.plugin.verification_checks import check_verifiable
from model_export.recipe import RECIPE_FILE
from model_export.spec import ExportSpec


@dataclass(frozen=True)
class ExportSettingsRequest(EngineAwareParameter):
    """The settings of the `export_model` target at `address`."""

    address: Address

    def debug_hint(self) -> str:
        return self.address.spec


@dataclass(frozen=True)
class ExportSettings:
    """The spec of an export, and the recipe that had a part in it."""

    spec: ExportSpec
    recipe: Optional[RecipeRecord]


@rule(desc="Read the settings of an export", level=LogLevel.DEBUG)
async def export_settings(request: ExportSettingsRequest) -> ExportSettings:
    address = request.address
    wrapped = await Get(WrappedTarget, WrappedTargetRequest(address, "an export"))
    target = wrapped.target
    if not target[RecipeField].value:
        return ExportSettings(export_spec(target), None)
    checkpoint = await Get(CheckpointFolder, ModelCheckpointRequest(address))
    entries = await Get(DigestEntries, Digest, checkpoint.digest)
    places = [
        entry for entry in entries if isinstance(entry, FileEntry) and entry.path in RECIPE_PLACES
    ]
    try:
        for entry in places:
            check_recipe_size(entry.path, entry.file_digest.serialized_bytes_length)
        contents = await Get(DigestContents, Digest, await Get(Digest, CreateDigest(places)))
        recipe = _recipe({file.path: file.content for file in contents})
        merged = merge(recipe, target_settings(target))
        check_verifiable(
            merged.spec.export_format,
            merged.spec.dtype,
            target[SkipVerifyField].value,
            target[ToleranceField].value,
        )
    except SpecError as error:
        raise TargetError(address, error) from error
    record = RecipeRecord(recipe.file, recipe.settings, merged.overridden)
    return ExportSettings(merged.spec, record)


def _recipe(files: Dict[str, bytes]) -> Recipe:
    recipe = find_recipe(files)
    if recipe is None:
        raise SpecError(
            "recipe",
            f"is True, and the checkpoint has no {RECIPE_FILE}",
            "Remove it and write the settings here, or add that file (docs/recipes.md)",
        )
    return recipe


def rules() -> Iterable[object]:
    return collect_rules()
