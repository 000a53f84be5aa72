"""Model classes that a checkpoint brings as Python files of its own, for targets that trust them.

They run in this process: without network, and with what the checkpoint's folder has. The engine
copies them below HOME, which is the sandbox's own, under a name made of their content.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers.dynamic_module_utils import get_class_from_dynamic_module

from model_export.exporter.errors import ExportError, summary

_AUTO_MAP = "auto_map"
_SUBJECT = f"config.json: {_AUTO_MAP}"


def names_own_code(config: Mapping[str, Any]) -> bool:
    """Whether a config.json asks for code that transformers doesn't have."""
    return bool(config.get(_AUTO_MAP))


def own_class(folder: Path, config: Mapping[str, Any], name: str) -> Any | None:
    """The class `name` of the checkpoint's own code; None if its `auto_map` has no such class.

    Runs that code. Raises ExportError if it can't be run, or lies in another repository.
    """
    reference = _reference(config, name)
    if reference is None:
        return None
    if "--" in reference:
        raise ExportError(
            _SUBJECT,
            f"names code of another repository, {reference.split('--')[0]!r}, which no lock pins",
            "Use a repository that has its code itself",
        )
    module, _, class_name = reference.rpartition(".")
    if not module.isidentifier() or not class_name.isidentifier():
        raise ExportError(_SUBJECT, f"has {reference!r}, which is no class of a file", "Correct it")
    try:
        return get_class_from_dynamic_module(reference, str(folder), local_files_only=True)
    except Exception as error:  # code of anyone can raise anything
        raise ExportError(
            f"{module}.py",
            f"can't be run ({summary(error)})",
            "Use a revision that fits the transformers of the resolve, or a `resolve` of your own "
            "that has what it imports",
        ) from error


def _reference(config: Mapping[str, Any], name: str) -> str | None:
    """What `auto_map` says for the model class `name`: `modeling_x.XForCausalLM`."""
    auto_map = config.get(_AUTO_MAP)
    if not isinstance(auto_map, Mapping):
        return None
    for key, reference in sorted(auto_map.items()):
        is_model = key.startswith("AutoModel") and isinstance(reference, str)
        if is_model and reference.rpartition(".")[2] == name:
            return str(reference)
    return None
