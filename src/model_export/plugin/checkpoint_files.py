"""Checks on the files of a checkpoint that need neither torch nor their contents."""

from __future__ import annotations

import json
from typing import Iterable, List

from model_export.plugin.field_errors import SpecError, nearest
from model_export.spec import ADAPTER_CONFIG, ADAPTER_WEIGHTS

CONFIG_FILE = "config.json"
_SAFE_WEIGHTS = ".safetensors"
_PICKLED_WEIGHTS = (".bin", ".pth", ".pt", ".ckpt")


def check_checkpoint_files(field: str, files: Iterable[str], allow_pickle: bool) -> None:
    """Check that a checkpoint folder has a config and weights that may be loaded.

    `files` are paths relative to the folder; `field` is the one to blame. Raises SpecError.
    """
    names = sorted(files)
    if CONFIG_FILE not in names:
        raise SpecError(
            field,
            f"gives a checkpoint without {CONFIG_FILE} at its root",
            f"Its files are {_listed(names)}: choose the folder that has it",
        )
    top = [name for name in names if "/" not in name]
    if any(name.endswith(_SAFE_WEIGHTS) for name in top):
        return
    pickles = [name for name in top if name.endswith(_PICKLED_WEIGHTS)]
    if not pickles:
        raise SpecError(
            field,
            "gives a checkpoint without weights",
            f"Its files are {_listed(names)}: it needs model.safetensors",
        )
    if not allow_pickle:
        raise SpecError(
            field,
            f"has its weights in a pickle, {pickles[0]}, which can run code when it is read",
            "Convert it to safetensors, or set `allow_pickle=True` if you trust it",
        )


def check_files(field: str, files: Iterable[str], allow_pickle: bool, adapter: bool) -> None:
    """Check that a folder has what is asked of it: an adapter, or a model; raises SpecError."""
    if adapter:
        check_adapter_files(field, files)
    else:
        check_checkpoint_files(field, files, allow_pickle)


def check_adapter_files(field: str, files: Iterable[str]) -> None:
    """Check that a folder has the files of a LoRA adapter that a merge reads; raises SpecError."""
    names = sorted(files)
    for wanted in (ADAPTER_CONFIG, ADAPTER_WEIGHTS):
        if wanted not in names:
            raise SpecError(
                field,
                f"gives an adapter without {wanted} at its root",
                f"Its files are {_listed(names)}: choose the folder that peft's `save_pretrained` "
                "wrote, with safetensors",
            )


def check_random_config(path: str, content: bytes) -> str:
    """Check that a `config.json` for random weights is JSON; return the architecture it names.

    Raises SpecError.
    """
    try:
        config = json.loads(content)
    except ValueError as error:
        raise SpecError(
            "config", f"names {path}, which is no JSON: {error}", "Write a config of transformers"
        ) from error
    architectures = config.get("architectures") if isinstance(config, dict) else None
    if not isinstance(architectures, list) or not architectures:
        raise SpecError(
            "config",
            f"names {path}, which has no 'architectures'",
            'Add the class to make, such as "architectures": ["Qwen3ForCausalLM"]',
        )
    return str(architectures[0])


def in_wheel_error(path: str, files: Iterable[str]) -> SpecError:
    """The error for a path that a wheel doesn't have."""
    folders = {name.rsplit("/", 1)[0] for name in files if "/" in name}
    candidates = {name for name in (*files, *folders) if ".dist-info" not in name}
    candidates = {name for name in candidates if not name.endswith((".py", ".pyc"))}
    return SpecError(
        "path", f"is {path!r}, which the wheel doesn't have", nearest(path, candidates)
    )


def _listed(names: List[str]) -> str:
    shown = ", ".join(names[:8])
    return shown + (f" and {len(names) - 8} more" if len(names) > 8 else "") if names else "none"
