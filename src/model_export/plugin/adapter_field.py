"""The field `adapter` of `export_model`: a LoRA adapter that is merged into the model."""

from __future__ import annotations

from typing import Optional, Tuple

from pants.engine.target import Target
from pants.util.strutil import help_text

from model_export.checkpoint_ask import CheckpointAsk
from model_export.checkpoint_lock import DEFAULT_REVISION, is_revision
from model_export.plugin.field_errors import SpecError
from model_export.plugin.fields import CheckedStringField
from model_export.plugin.references import check_model, is_address


class AdapterField(CheckedStringField):
    alias = "adapter"
    help = help_text(
        """
        A LoRA adapter, as `save_pretrained` of peft writes it, to merge into the model before it is
        exported: the address of a `local_checkpoint` or `wheel_checkpoint` with
        `adapter_config.json` and `adapter_model.safetensors`, or a Hugging Face id, `"org/name"` or
        `"org/name@revision"`, that `lock-checkpoints` pinned.
        """
    )

    @classmethod
    def check(cls, value: str) -> str:
        if not is_address(value):
            repo, revision = _split(value)
            if not is_revision(revision):
                raise SpecError(
                    cls.alias,
                    f"is {value!r}, whose part after '@' is no revision",
                    "Write a branch, a tag, a commit or `refs/pr/N` there",
                )
            check_model(repo, cls.alias)
            return value
        return check_model(value, cls.alias)


def adapter_ask(target: Target) -> Optional[CheckpointAsk]:
    """What a target asks of the hub for its adapter; None where that is no hub id."""
    adapter = target[AdapterField].value
    if adapter is None or is_address(adapter):
        return None
    repo, revision = _split(adapter)
    return CheckpointAsk(repo=repo, revision=revision, adapter=True)


def _split(adapter: str) -> Tuple[str, str]:
    repo, _, revision = adapter.partition("@")
    return repo, revision if "@" in adapter else DEFAULT_REVISION
