"""Finds the weights of a checkpoint folder as the engine will, and checks them without torch."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from model_export.exporter.errors import ExportError
from model_export.exporter.safetensors_header import SafetensorsError, read_header

SAFETENSORS = "model.safetensors"
PICKLE = "pytorch_model.bin"
INDEX_SUFFIX = ".index.json"
_PICKLES = (".bin", ".pt", ".pth", ".pt2", ".ckpt", ".pkl")
_AGAIN = "Fetch or copy the checkpoint again"


def find_weights(folder: Path, allow_pickle: bool) -> tuple[str, ...]:
    """The weights files that the engine will load, sorted, relative to `folder`.

    In the engine's order: model.safetensors, its shards, pytorch_model.bin, its shards. Headers of
    safetensors files are checked, tensors aren't read, and nothing is unpickled. Raises ExportError
    if there are none, only pickled ones without `allow_pickle`, or damaged or missing ones.
    """
    for single in (SAFETENSORS, PICKLE):
        pickled = single == PICKLE
        if (folder / single).exists():
            names: tuple[str, ...] = (single,)
            expected: Mapping[str, str] = {}
        elif (folder / f"{single}{INDEX_SUFFIX}").exists():
            expected = _read_index(folder, f"{single}{INDEX_SUFFIX}")
            names = tuple(sorted(set(expected.values())))
        else:
            continue
        if pickled and not allow_pickle:
            raise _pickle_error(names[0])
        if pickled:
            for name in names:
                _check_not_empty(folder, name)
        else:
            _check_safetensors(folder, names, expected)
        return names
    raise _none_found(folder)


def read_object(folder: Path, name: str) -> dict[str, Any]:
    """The JSON object in a file of the checkpoint; raises ExportError if it holds anything else."""
    try:
        document = json.loads((folder / name).read_text(encoding="utf-8"))
    except OSError as error:
        raise ExportError(name, f"can't be read ({error.strerror})", _AGAIN) from error
    except UnicodeDecodeError as error:
        raise ExportError(name, "isn't UTF-8 text", _AGAIN) from error
    except json.JSONDecodeError as error:
        raise ExportError(name, f"isn't valid JSON ({error})", _AGAIN) from error
    if not isinstance(document, dict):
        raise ExportError(name, "isn't a JSON object", _AGAIN)
    return document


def _read_index(folder: Path, name: str) -> dict[str, str]:
    index = read_object(folder, name)
    weight_map = index.get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ExportError(name, "has no `weight_map` that says which file has which tensor", _AGAIN)
    # The engine (transformers 5.24.0) ends in KeyError without it.
    if not isinstance(index.get("metadata"), dict):
        raise ExportError(name, "has no `metadata` object", 'Add `"metadata": {}` to it')
    for tensor, shard in weight_map.items():
        if not isinstance(shard, str) or Path(shard).name != shard or "\\" in shard:
            raise ExportError(
                name,
                f"puts the tensor `{tensor}` into {shard!r}, which isn't a file beside it",
                "Name shards by their file names alone",
            )
    for shard in sorted(set(weight_map.values())):
        if not (folder / shard).is_file():
            raise ExportError(shard, f"is missing, but {name} names it", _AGAIN)
    return weight_map


def _check_safetensors(folder: Path, names: tuple[str, ...], expected: Mapping[str, str]) -> None:
    for name in names:
        if not name.endswith(".safetensors"):
            raise ExportError(name, "isn't named *.safetensors as its index is", _AGAIN)
        try:
            found = read_header(folder / name)
        except OSError as error:
            raise ExportError(name, f"can't be read ({error.strerror})", _AGAIN) from error
        except SafetensorsError as error:
            raise ExportError(name, str(error), _AGAIN) from error
        for tensor, shard in expected.items():
            if shard == name and tensor not in found:
                raise ExportError(
                    name,
                    f"lacks the tensor `{tensor}` that {SAFETENSORS}{INDEX_SUFFIX} puts there",
                    _AGAIN,
                )


def _check_not_empty(folder: Path, name: str) -> None:
    if (folder / name).stat().st_size == 0:
        raise ExportError(name, "is truncated: 0 bytes", _AGAIN)


def _pickle_error(name: str) -> ExportError:
    return ExportError(
        name,
        "is a pickle, which can run code when it is loaded",
        "Convert it to safetensors, or set `allow_pickle=True` if you trust where it comes from",
    )


def _none_found(folder: Path) -> ExportError:
    for path in _sorted_files(folder):
        if path.suffix == ".safetensors":
            return ExportError(
                path.name,
                f"isn't where the engine looks for weights: {SAFETENSORS}, or shards "
                f"with {SAFETENSORS}{INDEX_SUFFIX}",
                f"Rename it to {SAFETENSORS}, or add the index",
            )
    for path in _sorted_files(folder):
        if path.suffix in _PICKLES:
            return ExportError(
                path.name,
                f"isn't named {PICKLE}, and is a pickle, which can run code when it is loaded",
                f"Convert it to {SAFETENSORS}",
            )
    return ExportError(
        SAFETENSORS, "is missing, and no other weights are there", "Add the model's weights"
    )


def _sorted_files(folder: Path) -> Iterator[Path]:
    yield from sorted(path for path in folder.iterdir() if path.is_file())
