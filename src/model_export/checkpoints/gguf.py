"""Turns a GGUF file into a checkpoint folder, once, for all exports that use it.

    python -m model_export.checkpoints.gguf IN_FILE OUT_DIR

The engine can load a GGUF file itself, but takes half a minute and twice the weights' memory for
SmolLM2-135M each time, and `save_pretrained` of such a model raises "quantized with gguf"
(transformers 5.24.0). Here the engine's own name map and tensor processors are used, and the
tensors pass one by one from the mapped GGUF file through `gguf.dequantize` into
model.safetensors. Only the fused experts of a mixture-of-experts model, which the engine collects
from several GGUF tensors, wait in memory until the end.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from model_export.checkpoints.process import run
from model_export.checkpoints.safetensors_writer import SafetensorsWriter
from model_export.exporter.errors import ExportError
from model_export.exporter.safetensors_header import SafetensorsError

WEIGHTS_FILE = "model.safetensors"
_MAGIC = b"GGUF"


def convert(source: Path, directory: Path) -> None:
    """Write the checkpoint folder `directory` (created if need be) from the GGUF file `source`.

    It holds config.json with `architectures`, generation_config.json, the tokenizer with its chat
    template, and model.safetensors in float32; tied embeddings are stored once. The bytes depend
    on the GGUF file and the versions of the packages alone.

    Raises ExportError for a file that isn't GGUF or is damaged, for an architecture that the
    engine doesn't know in GGUF, and for tensors that don't fit the architecture.
    """
    _check_magic(source)
    directory.mkdir(parents=True, exist_ok=True)
    config = _read_config(source)
    model = _empty_model(source, config)
    config.architectures = [type(model).__name__]
    config.dtype = "float32"
    _write_weights(source, model, directory / WEIGHTS_FILE)
    config.save_pretrained(directory)
    if model.can_generate():
        model.generation_config.save_pretrained(directory)
    _write_tokenizer(source, directory)


def _check_magic(source: Path) -> None:
    try:
        with source.open("rb") as file:
            magic = file.read(len(_MAGIC))
    except OSError as error:
        raise ExportError(
            source.name, f"can't be read ({error.strerror})", "Name a GGUF file"
        ) from error
    if magic != _MAGIC:
        raise ExportError(
            source.name, f"isn't a GGUF file: it starts with {magic!r}", "Name a GGUF file"
        )


def _damaged(source: Path, error: BaseException) -> ExportError:
    return ExportError(
        source.name,
        f"can't be read as GGUF by transformers ({error})",
        "Use an intact file of an architecture that transformers reads from GGUF",
    )


def _read_config(source: Path) -> Any:
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(source.parent, gguf_file=source.name)
    # What gguf 0.19.0 and transformers 5.24.0 raise for truncated files, bad lengths, unknown
    # value types and unknown architectures.
    except (
        ValueError,
        KeyError,
        IndexError,
        TypeError,
        OverflowError,
        UnicodeDecodeError,
    ) as error:
        raise _damaged(source, error) from error


def _empty_model(source: Path, config: Any) -> Any:
    """The model on the meta device: names and shapes, no memory."""
    import torch
    import transformers
    from transformers.models.auto.modeling_auto import (
        MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
        MODEL_MAPPING_NAMES,
    )

    named = config.architectures[0] if config.architectures else None
    for names in (
        MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
        MODEL_MAPPING_NAMES,
    ):
        named = named or names.get(config.model_type)
    if not isinstance(named, str):
        raise ExportError(
            source.name,
            f"holds a `{config.model_type}` model, for which transformers has no architecture",
            "Use another checkpoint",
        )
    with torch.device("meta"):
        return getattr(transformers, named)._from_config(config, dtype=torch.float32)


def _write_weights(source: Path, model: Any, target: Path) -> None:
    ties = set(model.all_tied_weights_keys)
    shapes = {
        name: ("F32", tuple(tensor.shape))
        for name, tensor in model.state_dict().items()
        if name not in ties
    }
    try:
        with SafetensorsWriter(target, shapes) as weights:
            for name, values in _tensors(source, model):
                if name in ties:
                    continue
                if name not in shapes:
                    raise SafetensorsError(f"has no place for the tensor `{name}`")
                if values.shape != shapes[name][1]:
                    raise SafetensorsError(
                        f"has the shape {list(values.shape)} for `{name}`, where "
                        f"{type(model).__name__} has {list(shapes[name][1])}"
                    )
                weights.write(name, np.ascontiguousarray(values, "<f4").data.cast("B"))
    except SafetensorsError as error:
        raise ExportError(
            source.name,
            f"doesn't fit {type(model).__name__}: {target.name} {error}",
            "Use an intact file of an architecture that transformers reads from GGUF",
        ) from error


def _tensors(source: Path, model: Any) -> Iterator[tuple[str, np.ndarray]]:
    """Each tensor by its name in the engine, dequantised to float32.

    This is the loop of `load_gguf_checkpoint` in transformers 5.24.0, which returns all tensors
    at once; a test compares the outcome with it.
    """
    from gguf import GGUFReader, dequantize
    from transformers import modeling_gguf_pytorch_utils as engine

    try:
        reader = GGUFReader(source)
        tensors = list(reader.tensors)
    except (ValueError, IndexError) as error:
        raise _damaged(source, error) from error
    architecture = engine.read_field(reader, "general.architecture")[0]
    processor = engine.TENSOR_PROCESSORS.get(architecture, engine.TensorProcessor)(
        config=model.config.to_dict()
    )
    names = engine.get_gguf_hf_weights_map(model, processor)
    # Where processors collect what they make of several GGUF tensors.
    collected: dict[str, Any] = {"tensors": {}}
    for tensor in tensors:
        result = processor.process(
            weights=dequantize(tensor.data, tensor.tensor_type),
            name=tensor.name,
            tensor_key_mapping=names,
            parsed_parameters=collected,
        )
        if result.name in names:
            yield names[result.name], result.weights
    for name, values in collected["tensors"].items():
        yield name, values.numpy()


def _write_tokenizer(source: Path, directory: Path) -> None:
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    except Exception as error:  # `tokenizers` raises bare Exception
        raise ExportError(
            source.name,
            f"has a tokenizer that transformers can't read ({error})",
            "Use a GGUF file with a tokenizer that transformers knows",
        ) from error
    tokenizer.save_pretrained(directory)
    # `is_local` and `local_files_only` tell how the tokenizer was loaded here, not what it is.
    path = directory / "tokenizer_config.json"
    settings = json.loads(path.read_text(encoding="utf-8"))
    for key in ("is_local", "local_files_only", "name_or_path"):
        settings.pop(key, None)
    text = json.dumps(settings, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    path.write_text(text, encoding="utf-8")


def main(arguments: Sequence[str]) -> None:
    """`IN_FILE OUT_DIR`."""
    source, directory = arguments
    convert(Path(source), Path(directory))


if __name__ == "__main__":
    run(main, "python -m model_export.checkpoints.gguf IN_FILE OUT_DIR")
