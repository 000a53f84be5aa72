"""The `export_model` target."""

from __future__ import annotations

from typing import Any

from pants.core.util_rules.environments import EnvironmentField
from pants.engine.target import (
    COMMON_TARGET_FIELDS,
    BoolField,
    Dependencies,
    MultipleSourcesField,
    StringField,
    Target,
    TriBoolField,
)
from pants.util.strutil import help_text

from model_export.plugin.adapter_field import AdapterField
from model_export.plugin.component_config import check_component_config_part
from model_export.plugin.config_keys import check_config_part
from model_export.plugin.export_spec import export_spec
from model_export.plugin.field_errors import SpecError
from model_export.plugin.fields import (
    ArtifactPathField,
    CheckedMappingField,
    CheckedNamesField,
    CheckedStringField,
    invalid_field,
)
from model_export.plugin.generation_checks import check_components, check_generation_config
from model_export.plugin.hub_fields import HUB_FIELDS, check_hub_fields
from model_export.plugin.inputs_field import InputsFromField
from model_export.plugin.platforms import PlatformsField
from model_export.plugin.quantizer_fields import CalibrationField, QuantizerField
from model_export.plugin.references import check_architecture, check_dtype, check_model
from model_export.plugin.shape_checks import check_dims_form, check_sample_inputs
from model_export.plugin.verification_checks import check_verifiable
from model_export.plugin.verification_fields import (
    SkipTestsField,
    SkipVerifyField,
    ToleranceField,
    VerificationTimeoutField,
)
from model_export.spec import DTYPES, FORMATS, GENERATION_COMPONENTS, TENSOR_DTYPES


class ArtifactSourcesField(MultipleSourcesField):
    """Holds no file: the anchor of the rule that hands the artifact to dependents as files."""

    alias = "_sources"
    uses_source_roots = False
    expected_num_files = 0
    help = "Not for BUILD files: stands for the artifact's files where a target depends on them."


class ModelField(CheckedStringField):
    alias = "model"
    required = True
    value: str
    help = help_text(
        """
        The checkpoint to export: the address of a `wheel_checkpoint`, `local_checkpoint` or
        `random_checkpoint` (`":smollm2"`, `"models/checkpoints:smollm2"`), or a Hugging Face id
        (`"Qwen/Qwen3-0.6B"`) that `lock-checkpoints` pinned in `3rdparty/checkpoints.lock.json`.
        """
    )

    @classmethod
    def check(cls, value: str) -> str:
        return check_model(value)


class RecipeField(BoolField):
    alias = "recipe"
    default = False
    help = help_text(
        """
        Take the settings that this target leaves open from the `export_config.json` of the
        checkpoint: `config`, `architecture`, `dtype`, `for_generation`, `generation_config`,
        `multi_token_decode`, `components`, `component_config`, `sample_inputs`, `dims` and
        `quantizer`. docs/recipes.md has the format, and what happens where both say something.
        """
    )


class ConfigField(CheckedMappingField):
    alias = "config"
    help = help_text(
        f"""
        What `transformers.exporters.AutoExportConfig.from_dict` takes, field for field:
        `{{"export_format": "onnx", "dynamic": True}}`. Required, but with `recipe=True`.

        `export_format` is one of {", ".join(FORMATS)}. docs/target.md lists the keys of each
        format; an unknown key, or a key of another format, is an error.
        """
    )

    @classmethod
    def check(cls, value: Any) -> None:
        check_config_part(value)


class ArchitectureField(CheckedStringField):
    alias = "architecture"
    help = help_text(
        """
        The model class to load, such as `"Qwen3ForCausalLM"`. Default: the first entry of
        `architectures` in the checkpoint's `config.json`.
        """
    )

    @classmethod
    def check(cls, value: str) -> str:
        return check_architecture(value)


class DtypeField(CheckedStringField):
    alias = "dtype"
    help = f"The dtype of the weights in the artifact: {', '.join(DTYPES)}. Default: float32."

    @classmethod
    def check(cls, value: str) -> str:
        return check_dtype(value)


class ForGenerationField(TriBoolField):
    alias = "for_generation"
    help = help_text(
        """
        Export the graphs that a generation loop calls (`prefill`, `decode`, encoders) with
        `export_for_generation`, and not the one that `forward` is. Default: False.
        """
    )


class GenerationConfigField(CheckedMappingField):
    alias = "generation_config"
    help = help_text(
        """
        What `transformers.GenerationConfig` takes, on top of the checkpoint's own
        `generation_config.json`: `{"cache_implementation": "static", "max_cache_len": 2048}`. Needs
        `for_generation=True`.
        """
    )

    @classmethod
    def check(cls, value: Any) -> None:
        check_generation_config(value)


class MultiTokenDecodeField(TriBoolField):
    alias = "multi_token_decode"
    help = help_text(
        """
        Export a `decode` graph that takes any number of tokens, so that it serves the prompt as
        well; `components` then defaults to `["decode"]`. Needs `for_generation=True`. Default:
        False.
        """
    )


class ComponentsField(CheckedNamesField):
    alias = "components"
    help = help_text(
        f"""
        The graphs to build, of those that the model has. Default: all, or `decode` alone where
        `multi_token_decode` makes it serve the prompt. Needs `for_generation=True`.

        Known: {", ".join(GENERATION_COMPONENTS)}. With a file in `inputs_from` that returns
        components, what it calls them.
        """
    )

    @classmethod
    def check(cls, value: Any) -> None:
        # Known names: with `inputs_from`, when the whole target is read.
        check_components(value, custom=True)


class ComponentConfigField(CheckedMappingField):
    alias = "component_config"
    help = help_text(
        """
        Keys of `config` that a component has otherwise than the rest, by its name:
        `{"decode": {"opset_version": 21}}`; all but `export_format`. Needs `for_generation=True`.
        """
    )

    @classmethod
    def check(cls, value: Any) -> None:
        check_component_config_part(value, custom=True)


class SampleInputsField(CheckedMappingField):
    alias = "sample_inputs"
    help = help_text(
        f"""
        What the model is traced with. `"text"` is a list of strings for the checkpoint's own
        tokenizer, which pads them. `"images"` and `"audio"` are addresses of `file` and `files`
        targets: they and the text, with the checkpoint's own placeholders in it, go through its
        processor. Any other name is an input of `forward`: a tensor by
        `{{"shape": [2, 8], "dtype": "int64", "range": [0, 100]}}` (half-open, drawn from a fixed
        seed) or by `{{"values": [[1, 2]], "dtype": "int64"}}`. Default: by architecture.

        Tensor dtypes: {", ".join(TENSOR_DTYPES)}.
        """
    )

    @classmethod
    def check(cls, value: Any) -> None:
        check_sample_inputs(value)


class DimsField(CheckedMappingField):
    alias = "dims"
    help = help_text(
        """
        Bounds of the dimensions that `config["dynamic_shapes"]` names, `{"seq": (1, 4096)}`: what
        `torch.export.Dim("seq", min=1, max=4096)` says in a script.
        """
    )

    @classmethod
    def check(cls, value: Any) -> None:
        check_dims_form(value)


class ExportResolveField(StringField):
    alias = "resolve"
    help = help_text(
        """
        The resolve of `[python].resolves` that the export runs in. Its lock needs torch,
        transformers and the format's packages, a hash on every line. Default: the name of the
        format; `executorch-cuda` and `executorch-mlx` with these delegates.
        """
    )


class ExportDependenciesField(Dependencies):
    supports_transitive_excludes = True
    help = "Targets this one needs. The checkpoint in `model` is added by itself."


class ExportModelTarget(Target):
    alias = "export_model"
    core_fields = (
        *COMMON_TARGET_FIELDS,
        ArtifactSourcesField,
        ExportDependenciesField,
        ModelField,
        *HUB_FIELDS,
        AdapterField,
        RecipeField,
        ConfigField,
        ArchitectureField,
        DtypeField,
        ForGenerationField,
        GenerationConfigField,
        MultiTokenDecodeField,
        ComponentsField,
        ComponentConfigField,
        SampleInputsField,
        InputsFromField,
        DimsField,
        QuantizerField,
        CalibrationField,
        ExportResolveField,
        PlatformsField,
        SkipVerifyField,
        ToleranceField,
        VerificationTimeoutField,
        SkipTestsField,
        ArtifactPathField,
        EnvironmentField,
    )
    help = help_text(
        """
        A Hugging Face checkpoint turned into a torch.export, ONNX, ExecuTorch or OpenVINO artifact
        by `transformers.exporters`.

        `package` verifies the artifact against the model and writes it to `dist/`; `test` shows
        what verification saw, `run` runs the artifact. Any target may depend on it: the artifact's
        files then appear in that target's sandbox, at the same path.
        """
    )

    def validate(self) -> None:
        try:
            check_hub_fields(self, self[ModelField].value)
            if self[RecipeField].value:
                return  # What goes together is known once the checkpoint is there.
            spec = export_spec(self)
            check_verifiable(
                spec.export_format,
                spec.dtype,
                self[SkipVerifyField].value,
                self[ToleranceField].value,
            )
        except SpecError as error:
            raise invalid_field(self.address, error) from error
