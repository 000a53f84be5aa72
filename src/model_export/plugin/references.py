"""Checks of what names something: the model, a dtype, an architecture, a path inside a folder."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Mapping, Optional

from model_export.checkpoint_lock import is_repo_id
from model_export.plugin.field_errors import SpecError, nearest
from model_export.spec import DTYPES

_DTYPE_ALIASES: Mapping[str, str] = {
    "fp32": "float32",
    "float": "float32",
    "f32": "float32",
    "torch.float32": "float32",
    "fp16": "float16",
    "half": "float16",
    "f16": "float16",
    "torch.float16": "float16",
    "bf16": "bfloat16",
    "torch.bfloat16": "bfloat16",
}


def is_address(model: str) -> bool:
    """Whether `model` is the address of a target; every address has a `:` or starts with `//`."""
    return ":" in model or model.startswith("//")


def check_model(model: str, field: str = "model") -> str:
    """Check that `model` is an address or has the form of a hub id; raises SpecError if neither."""
    remedy = "Write the address of a checkpoint (':smollm2') or a hub id ('Qwen/Qwen3-0.6B')"
    if not model:
        raise SpecError(field, "is empty", remedy)
    if "://" in model:
        raise SpecError(field, f"is a URL: {model!r}", remedy)
    if is_address(model):
        return model
    if model.startswith(("/", "./", "../", "~")) or model.count("/") > 1:
        raise SpecError(
            field,
            f"is a path: {model!r}",
            "Make the folder a `local_checkpoint` and write its address",
        )
    if not is_repo_id(model):
        raise SpecError(field, f"is {model!r}, which is no hub id", remedy)
    return model


def check_dtype(dtype: str) -> str:
    """Check the name of a weight dtype; raises SpecError with the nearest one."""
    if dtype not in DTYPES:
        raise SpecError(
            "dtype", f"is {dtype!r}, which no export has", nearest(dtype, DTYPES, _DTYPE_ALIASES)
        )
    return dtype


def check_architecture(architecture: str) -> str:
    """Check that `architecture` can name a class; the export process knows which exist."""
    if not architecture.isidentifier():
        raise SpecError(
            "architecture",
            f"is {architecture!r}, which is no class name",
            "Write a class of transformers, such as 'Qwen3ForCausalLM'",
        )
    return architecture


def inputs_path(value: str) -> Optional[str]:
    """The path, relative to the BUILD file, that an `inputs_from` names; None for an address."""
    path = value[1:] if value.startswith(":") else value
    return None if is_address(path) or not path.endswith(".py") else path


def check_inputs_from(value: str) -> str:
    """Check that `inputs_from` is a path of a Python file or an address; raises SpecError."""
    path = inputs_path(value)
    if path is not None:
        prefix = ":" if value.startswith(":") else ""
        return prefix + check_relative_path("inputs_from", path, "the folder of the BUILD file")
    if not is_address(value):
        raise SpecError(
            "inputs_from",
            f"is {value!r}, which is neither a Python file nor an address",
            'Write ":inputs.py", a file beside the BUILD file',
        )
    return value


def check_relative_path(field: str, path: str, inside: str) -> str:
    """Check that `path` stays inside a folder, and return it without `./` and a final slash.

    `inside` says which folder, for the error. Raises SpecError for an absolute path, `..`, a back
    slash and the folder itself.
    """
    parts = PurePosixPath(path).parts
    if not path or not parts:
        raise SpecError(field, f"is {path!r}", f"Write a path inside {inside}")
    if path.startswith(("/", "~")) or "\\" in path:
        raise SpecError(field, f"is {path!r}", f"Write a path relative to {inside}, with '/'")
    if ".." in parts:
        raise SpecError(field, f"leaves {inside}: {path!r}", "Write a path without '..'")
    return "/".join(parts)
