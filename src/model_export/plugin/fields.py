"""Field types that turn a SpecError into Pants' error for a field, and freeze nested values."""

from __future__ import annotations

import os
from typing import Any, ClassVar, Iterable, Mapping, Optional

from pants.core.goals.package import OutputPathField
from pants.engine.addresses import Address
from pants.engine.target import Field, InvalidFieldException, SequenceField, StringField
from pants.util.frozendict import FrozenDict

from model_export.plugin.field_errors import SpecError
from model_export.plugin.references import check_relative_path


def freeze(value: Any) -> Any:
    """`value` with dicts as FrozenDict and lists as tuples: Pants hashes the values of fields."""
    if isinstance(value, Mapping):
        return FrozenDict({key: freeze(item) for key, item in value.items()})
    if isinstance(value, (list, tuple)):
        return tuple(freeze(item) for item in value)
    try:
        hash(value)
    except TypeError as error:
        raise SpecError(
            "value", f"holds a {type(value).__name__}", "Write numbers, strings, lists and dicts"
        ) from error
    return value


def invalid_field(address: Address, error: SpecError) -> InvalidFieldException:
    """The exception of Pants for a field, with the target's address before our line."""
    return InvalidFieldException(f"{address}: {error}")


class CheckedMappingField(Field):
    """A dict whose keys and values `check` knows; the value keeps what the BUILD file says."""

    value: Optional[FrozenDict[str, Any]]
    default: ClassVar[Optional[FrozenDict[str, Any]]] = None

    @classmethod
    def compute_value(
        cls, raw_value: Optional[Mapping[str, Any]], address: Address
    ) -> Optional[FrozenDict[str, Any]]:
        value = super().compute_value(raw_value, address)
        if value is None:
            return None
        try:
            cls.check(value)
            frozen: FrozenDict[str, Any] = freeze(value)
        except SpecError as error:
            raise invalid_field(address, error) from error
        return frozen

    @classmethod
    def check(cls, value: Any) -> None:
        """Raise SpecError if the value can't be exported."""
        raise NotImplementedError


class CheckedStringField(StringField):
    """A string that `check` normalises."""

    @classmethod
    def compute_value(cls, raw_value: Optional[str], address: Address) -> Optional[str]:
        value = super().compute_value(raw_value, address)
        if value is None:
            return None
        try:
            return cls.check(value)
        except SpecError as error:
            raise invalid_field(address, error) from error

    @classmethod
    def check(cls, value: str) -> str:
        """Return the value in its one spelling; raise SpecError if it can't be used."""
        raise NotImplementedError


class CheckedNamesField(SequenceField[str]):
    """A list of names that `check` knows."""

    expected_element_type = str
    expected_type_description = "a list of strings"

    @classmethod
    def compute_value(cls, raw_value: Optional[Iterable[str]], address: Address) -> Any:
        value = super().compute_value(raw_value, address)
        try:
            cls.check(value)
        except SpecError as error:
            raise invalid_field(address, error) from error
        return value

    @classmethod
    def check(cls, value: Any) -> None:
        """Raise SpecError for an unknown name."""
        raise NotImplementedError


class ArtifactPathField(OutputPathField):
    """Where an artifact goes: the same path in `dist/` and in the sandboxes of dependents.

    Rules that take both a dependency's files and its package (shell_command, adhoc_tool, docker)
    then see one copy. The stock default writes `a.b/name` for a target in `a/b`.
    """

    help = (
        "The artifact's folder, below `dist/` and in the sandboxes of targets that depend on it. "
        "Default: the folder of the BUILD file, then the target's name."
    )

    @classmethod
    def compute_value(cls, raw_value: Optional[str], address: Address) -> Optional[str]:
        value = super().compute_value(raw_value, address)
        if value is None:
            return None
        try:
            return check_relative_path(cls.alias, value, "dist/")
        except SpecError as error:
            raise invalid_field(address, error) from error

    def value_or_default(self, *, file_ending: Optional[str]) -> str:
        if self.value:
            return self.value
        name = self.address.generated_name or self.address.target_name
        return os.path.join(self.address.spec_path, f"{name}{self.address.parameters_repr}")
