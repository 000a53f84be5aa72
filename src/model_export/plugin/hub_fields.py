"""The fields of `export_model` that belong to a hub id: its revision, and which files of it count.

`hub_ask` turns them into what the lock is asked for.
"""

from __future__ import annotations

from typing import Any, List, Optional, Sequence, Tuple, Type

from pants.engine.target import BoolField, Field, Target
from pants.util.strutil import help_text

from model_export.checkpoint_ask import CheckpointAsk
from model_export.checkpoint_lock import DEFAULT_REVISION, MAX_PATTERNS, is_pattern, is_revision
from model_export.plugin.field_errors import SpecError
from model_export.plugin.fields import CheckedNamesField, CheckedStringField
from model_export.plugin.references import check_relative_path, is_address


class RevisionField(CheckedStringField):
    alias = "revision"
    help = help_text(
        f"""
        The branch, tag, commit or `refs/pr/N` of the hub id in `model`. The lock pins the commit
        that it is when it is locked. Default: `{DEFAULT_REVISION}`.
        """
    )

    @classmethod
    def check(cls, value: str) -> str:
        if not is_revision(value):
            raise SpecError(
                cls.alias,
                f"is {value!r}, which is no revision",
                "Write a branch, a tag, a commit or `refs/pr/N`",
            )
        return value


class _PatternsField(CheckedNamesField):
    @classmethod
    def check(cls, value: Any) -> None:
        patterns: Sequence[str] = value or ()
        if len(patterns) > MAX_PATTERNS:
            raise SpecError(cls.alias, f"has more than {MAX_PATTERNS} patterns", "Use wildcards")
        for pattern in patterns:
            if not is_pattern(pattern):
                raise SpecError(
                    cls.alias,
                    f"has {pattern!r}, which can't match a file",
                    "Write paths of the repository such as 'onnx/*' or '*.txt'",
                )


class IncludeField(_PatternsField):
    alias = "include"
    help = help_text(
        """
        Files of the hub id in `model` to lock and fetch on top of those that an export needs:
        `["*.spm", "extra/*"]`. `*` also matches `/`.
        """
    )


class ExcludeField(_PatternsField):
    alias = "exclude"
    help = help_text(
        """
        Files of the hub id in `model` to leave out, as if its repository didn't have them. `*`
        also matches `/`.
        """
    )


class GgufFileField(CheckedStringField):
    alias = "gguf_file"
    help = help_text(
        """
        The `.gguf` file of the hub id in `model` to take the weights from; it is turned into
        safetensors once. Of a file in parts, name one. Default: no GGUF file is used.
        """
    )

    @classmethod
    def check(cls, value: str) -> str:
        if not value.endswith(".gguf"):
            raise SpecError(cls.alias, f"is {value!r}", "Write a file that ends in .gguf")
        return check_relative_path(cls.alias, value, "the repository of the hub id")


class AllowHubPickleField(BoolField):
    alias = "allow_pickle"
    default = False
    help = help_text(
        """
        Take the weights of the hub id in `model` from pickles (`pytorch_model.bin`) where it has no
        safetensors. Reading a pickle runs code that is in it: set this only if you trust its owner.
        """
    )


class TrustRemoteCodeField(BoolField):
    alias = "trust_remote_code"
    default = False
    help = help_text(
        """
        Lock and fetch the Python files of the hub id in `model` as well. They run when its model
        is loaded: set this only if you trust them. The lock pins each of them.
        """
    )


HUB_FIELDS: Tuple[Type[Field], ...] = (
    RevisionField,
    IncludeField,
    ExcludeField,
    GgufFileField,
    AllowHubPickleField,
    TrustRemoteCodeField,
)


def check_hub_fields(target: Target, model: str) -> None:
    """Check that a target whose model is no hub id sets none of these; raises SpecError."""
    if not is_address(model):
        return
    given: List[str] = [kind.alias for kind in HUB_FIELDS if target[kind].value]
    if given:
        raise SpecError(
            given[0],
            f"belongs to a hub id, and `model` is the address {model!r}",
            "Remove it"
            + (
                ", or set it on that checkpoint"
                if given[0] in (AllowHubPickleField.alias, TrustRemoteCodeField.alias)
                else ""
            ),
        )


def hub_ask(target: Target, model: str) -> Optional[CheckpointAsk]:
    """What a target asks of its hub id; None if `model` is an address."""
    if is_address(model):
        return None
    return CheckpointAsk(
        repo=model,
        revision=target[RevisionField].value or DEFAULT_REVISION,
        include=tuple(sorted(set(target[IncludeField].value or ()))),
        exclude=tuple(sorted(set(target[ExcludeField].value or ()))),
        gguf_file=target[GgufFileField].value,
        pickle=target[AllowHubPickleField].value,
        remote_code=target[TrustRemoteCodeField].value,
    )
