"""Makes a checkpoint folder from a config and a seed: the same bytes on every machine.

    python -m model_export.checkpoints.random_weights CONFIG_DIR SEED OUT_DIR

For builds that have to work without real weights: smoke tests, benchmarks, a new architecture.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from model_export.checkpoints.process import run
from model_export.exporter.errors import ExportError
from model_export.exporter.weights_files import read_object

CONFIG_FILE = "config.json"


def generate(source: Path, seed: int, directory: Path) -> None:
    """Write the checkpoint folder `directory` from `source`, which holds a config.json.

    The architecture is the config's first one and is initialised by its own rules: the config's
    standard deviations, ones in norms, zeros in biases. Each tensor's numbers depend on the seed
    and its name alone. Weights have the config's `dtype`, float32 without one; a
    generation_config.json joins them where the architecture generates and `source` has none.
    Every file of `source` is copied as it is.

    Raises ExportError for a config.json that is missing, damaged, without a known architecture or
    quantized, and for an architecture whose initialisation can't be reproduced.
    """
    config, architecture = _read_config(source)
    weights = sorted(path.name for path in source.rglob("*.safetensors"))
    if weights:
        raise ExportError(
            weights[0],
            "lies beside a config that asks for random weights",
            "Use a local_checkpoint for weights that are there",
        )
    model = _initialized(architecture, config, seed)
    directory.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(directory, max_shard_size="1000TB")
    shutil.copytree(source, directory, dirs_exist_ok=True, copy_function=shutil.copyfile)


def _read_config(source: Path) -> tuple[Any, type[Any]]:
    import transformers

    if not (source / CONFIG_FILE).is_file():
        raise ExportError(CONFIG_FILE, "is missing", "Add the model's config.json")
    document = read_object(source, CONFIG_FILE)
    named = document.get("architectures")
    if not (isinstance(named, list) and named and isinstance(named[0], str)):
        raise ExportError(
            f"{CONFIG_FILE}: architectures",
            "is missing",
            'Name the class to build, for example "architectures": ["Qwen3ForCausalLM"]',
        )
    if "quantization_config" in document:
        raise ExportError(
            f"{CONFIG_FILE}: quantization_config",
            "can't be combined with random weights",
            "Remove it and quantize at export",
        )
    architecture: Any = getattr(transformers, named[0], None)
    if not isinstance(getattr(architecture, "config_class", None), type):
        raise ExportError(
            f"{CONFIG_FILE}: architectures",
            f"names {named[0]}, which transformers {transformers.__version__} doesn't have",
            "Name a class of transformers",
        )
    try:
        return architecture.config_class.from_pretrained(source), architecture
    except Exception as error:  # each config class validates with exceptions of its own
        raise ExportError(
            CONFIG_FILE, f"is refused by {named[0]} ({error})", "Repair it"
        ) from error


def _initialized(architecture: type[Any], config: Any, seed: int) -> Any:
    import torch
    from transformers.initialization import meta_device_safe_creation_ops

    from model_export.checkpoints.exact_initialization import (
        UnknownRandomOperator,
        exact_initialization,
    )

    dtype = config.dtype if config.dtype is not None else torch.float32
    with torch.device("meta"), meta_device_safe_creation_ops():
        model = architecture._from_config(config, dtype=dtype)
    names = _materialize(model)
    # Set by the initialisation on the meta device, which had nothing to fill.
    for module in model.modules():
        module._is_hf_initialized = False
    try:
        with exact_initialization(seed, names):
            model.initialize_weights()
        if _unset(model):
            # Values that the architecture sets where it is constructed and nowhere else, like
            # CLIP's logit_scale: from a copy that is constructed with memory.
            with exact_initialization(seed, {}):
                constructed = architecture._from_config(config, dtype=dtype).state_dict()
            with torch.no_grad():
                for name, tensor in _unset(model).items():
                    tensor.copy_(constructed[name])
    except UnknownRandomOperator as error:
        raise ExportError(
            f"{CONFIG_FILE}: architectures",
            f"names {architecture.__name__}, whose weights can't be drawn reproducibly: {error}",
            "Use a local_checkpoint with weights",
        ) from error
    for name in _unset(model):
        raise ExportError(
            f"{CONFIG_FILE}: architectures",
            f"names {architecture.__name__}, which leaves `{name}` without initial values",
            "Use a local_checkpoint with weights",
        )
    return model


def _materialize(model: Any) -> dict[int, str]:
    """Give every tensor memory, ties kept; returns each one's name by its storage address.

    The memory is filled with a mark, so that a tensor that the engine doesn't initialise is found
    instead of being written as whatever lay there.
    """
    import torch

    from model_export.checkpoints.exact_initialization import mark_of

    # Each meta tensor with what replaces it; kept together, so that no id is used twice.
    made: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
    names: dict[int, str] = {}
    for prefix, module in model.named_modules():
        for tensors in (module._parameters, module._buffers):
            for key, tensor in tensors.items():
                if tensor is None:
                    continue
                if id(tensor) not in made:
                    values = torch.full_like(tensor, mark_of(tensor.dtype), device="cpu")
                    names[values.untyped_storage().data_ptr()] = f"{prefix}.{key}".lstrip(".")
                    if isinstance(tensor, torch.nn.Parameter):
                        values = torch.nn.Parameter(values, tensor.requires_grad)
                    made[id(tensor)] = (tensor, values)
                tensors[key] = made[id(tensor)][1]
    return names


def _unset(model: Any) -> dict[str, Any]:
    """The tensors of the state dict that still have the mark in them, by name."""
    import torch

    from model_export.checkpoints.exact_initialization import mark_of

    tensors = {
        name: tensor for name, tensor in model.state_dict().items() if tensor.dtype != torch.bool
    }
    return {
        name: tensor
        for name, tensor in tensors.items()
        if bool(
            (
                tensor.isnan() if tensor.is_floating_point() else tensor == mark_of(tensor.dtype)
            ).any()
        )
    }


def main(arguments: Sequence[str]) -> None:
    """`CONFIG_DIR SEED OUT_DIR`."""
    source, seed, directory = arguments
    if not seed.removeprefix("-").isdecimal():
        raise ExportError("seed", f"is {seed!r}", "Give a whole number")
    generate(Path(source), int(seed), Path(directory))


if __name__ == "__main__":
    run(main, "python -m model_export.checkpoints.random_weights CONFIG_DIR SEED OUT_DIR")
