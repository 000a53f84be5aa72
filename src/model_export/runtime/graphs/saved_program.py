"""Loads a `.pt2` of this repository in a process that never saw the model.

Beside torch it needs transformers, for the classes of caches and outputs; no checkpoint. A `.pt2`
keeps its example inputs as a pickle, and unpickling can run code: load only what you trust.
"""

from __future__ import annotations

import importlib
import json
import logging
import re
import types
import typing
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch._export.serde import serialize
from torch.utils import _pytree as pytree
from transformers.cache_utils import Cache
from transformers.exporters.metadata import register_treespec_types


def load(path: Path) -> torch.export.ExportedProgram:
    """The program in `path`, with every class of its inputs and outputs known to torch.

    torch.export.load alone fails in a fresh process (torch 2.12.0, transformers 5.24.0): an output
    class is registered when the model's module is imported, a cache class only once an export
    registers it. The archive names both; they are imported and registered here.
    """
    specs = list(_tree_specs(path))
    for spec in specs:
        register_treespec_types(spec)
    # Without the allow-list torch 2.12.0 reads the example inputs with weights_only=True, fails,
    # and tries again without.
    with (
        torch.serialization.safe_globals(list(_classes(specs))),
        _without_retry_warning(),
        _remembered_type_hints(),
    ):
        return torch.export.load(str(path))


@contextmanager
def _remembered_type_hints() -> Iterator[None]:
    """Ask for the type hints of each class of the schema once in this block.

    torch 2.12.0 asks for every value in the archive (`_export/serde/serialize.py`,
    `_dict_to_dataclass`): 63,000 times in a 30-layer decoder, a sixth of the time that loading it
    takes, and `typing` keeps none.
    """
    names = {**vars(typing), "get_type_hints": _TypeHints()}
    serialize.typing = types.SimpleNamespace(**names)
    try:
        yield
    finally:
        serialize.typing = typing


class _TypeHints:
    """`typing.get_type_hints`, each class once."""

    def __init__(self) -> None:
        self._known: dict[type, dict[str, Any]] = {}

    def __call__(self, schema_class: type, globalns: dict[str, Any]) -> dict[str, Any]:
        hints = self._known.get(schema_class)
        if hints is None:
            hints = typing.get_type_hints(schema_class, globalns=globalns)
            self._known[schema_class] = hints
        return hints


@contextmanager
def _without_retry_warning() -> Iterator[None]:
    """Keep torch from warning of a second try in this block.

    It tries twice where the example inputs hold a ModelOutput (`encoder_outputs`), which
    weights_only=True can't build. Its warning has one argument less than its text (torch 2.12.0,
    `_export/serde/serialize.py`): logging prints a traceback of its own, "not enough arguments for
    format string".
    """
    logger = logging.getLogger("torch._export.serde.serialize")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def empty_cache(program: torch.export.ExportedProgram, batch: int) -> Cache:
    """The cache that `program` was traced with, emptied, for `batch` sequences.

    A static cache keeps its length and counts from zero again; a growing cache has length zero.
    Raises ValueError if the program takes no cache.
    """
    _, kwargs = program.example_inputs
    caches = [value for value in kwargs.values() if isinstance(value, Cache)]
    if not caches:
        raise ValueError("This program takes no cache: it is no decode component.")
    leaves, spec = pytree.tree_flatten(caches[0])
    static = any(isinstance(leaf, torch.Tensor) and leaf.dim() == 0 for leaf in leaves)
    return pytree.tree_unflatten([_emptied(leaf, batch, static) for leaf in leaves], spec)


def _emptied(leaf: Any, batch: int, static: bool) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    if leaf.dim() == 0:
        return torch.zeros_like(leaf)
    _, *sizes = leaf.shape
    if not static:
        sizes[-2] = 0
    return leaf.new_zeros((batch, *sizes))


def _classes(specs: Iterable[str]) -> set[Any]:
    """The classes of transformers that `specs` name: caches and their layers."""
    found = {
        match for spec in specs for match in re.findall(r"(transformers(?:\.\w+)+):(\w+)", spec)
    }
    return {getattr(importlib.import_module(module), name) for module, name in found}


def _tree_specs(path: Path) -> Iterator[str]:
    """The serialized tree specs of every graph in the archive."""
    with zipfile.ZipFile(path) as archive:
        for member in archive.namelist():
            if "/models/" in member and member.endswith(".json"):
                model = json.loads(archive.read(member))
                for entry in model["graph_module"]["module_call_graph"]:
                    signature = entry.get("signature") or {}
                    for side in ("in_spec", "out_spec"):
                        if signature.get(side):
                            yield signature[side]
