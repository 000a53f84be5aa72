"""Runs a target's own Python file, `inputs_from`: sample inputs, or the components themselves.

The file lies at its path in the repository, below the folder that the process runs in. What it
raises becomes an error that names the file and the line.
"""

from __future__ import annotations

import copy
import importlib.util
import inspect
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.exporters.utils import get_leaf_tensors

from model_export.exporter.errors import ExportError, summary
from model_export.spec import COMPONENT_NAME, ExportSpec

_FIELD = "inputs_from"
_SAMPLE_INPUTS = "sample_inputs"
_COMPONENTS = "components"
_REMEDY = "docs/inputs.md says what such a file defines"
_NAME = re.compile(COMPONENT_NAME)

Parts = dict[str, tuple[torch.nn.Module, dict[str, Any]]]


@dataclass(frozen=True)
class CustomInputs:
    """The functions of a file; None for one that it doesn't define."""

    path: str
    _sample_inputs: Callable[..., Any] | None
    _components: Callable[..., Any] | None

    @property
    def has_sample_inputs(self) -> bool:
        """Whether it says what the model is traced with."""
        return self._sample_inputs is not None

    @property
    def has_components(self) -> bool:
        """Whether it says which graphs there are."""
        return self._components is not None

    def sample_inputs(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None
    ) -> dict[str, Any]:
        """What its `sample_inputs(model, tokenizer)` returns: arguments of `forward`.

        Raises ExportError for what the file raises, and for what the model doesn't take.
        """
        assert self._sample_inputs is not None
        with _blamed(self.path), torch.no_grad():
            inputs = self._sample_inputs(model, tokenizer)
        if not isinstance(inputs, Mapping) or not inputs:
            raise self._wrong(_SAMPLE_INPUTS, f"returns {_shown(inputs)}, and not a dict of inputs")
        accepted = inspect.signature(model.forward).parameters
        for name in inputs:
            if name not in accepted:
                raise self._wrong(
                    _SAMPLE_INPUTS, f"returns {name!r}, which is no input of {type(model).__name__}"
                )
        if not get_leaf_tensors(dict(inputs)):
            raise self._wrong(_SAMPLE_INPUTS, "returns no tensor")
        return dict(inputs)

    def components(self, model: PreTrainedModel, inputs: Mapping[str, Any]) -> Parts:
        """What its `components(model, inputs)` returns: modules, each with the arguments of a call.

        Raises ExportError for what the file raises, and for what can't be exported.
        """
        assert self._components is not None
        with _blamed(self.path), torch.no_grad():
            parts = self._components(model, dict(inputs))
        if not isinstance(parts, Mapping) or not parts:
            raise self._wrong(_COMPONENTS, f"returns {_shown(parts)}, and not a dict of components")
        return {name: self._part(name, part) for name, part in parts.items()}

    def _part(self, name: object, part: object) -> tuple[torch.nn.Module, dict[str, Any]]:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise self._wrong(
                _COMPONENTS, f"returns the name {name!r}, and not small letters, digits and `_`"
            )
        pair = part if isinstance(part, tuple) and len(part) == 2 else (None, None)
        module, kwargs = pair
        if not isinstance(module, torch.nn.Module) or not isinstance(kwargs, Mapping):
            raise self._wrong(
                _COMPONENTS, f"returns {_shown(part)} for {name!r}, and not (module, inputs)"
            )
        # Of its own: what is traced is blanked later on, and this may be the model's.
        return module, copy.deepcopy(dict(kwargs))

    def _wrong(self, function: str, problem: str) -> ExportError:
        return ExportError(_FIELD, f"{self.path}: `{function}` {problem}", _REMEDY)


def custom_inputs(spec: ExportSpec) -> CustomInputs | None:
    """The functions of the file that the spec names, which runs once; None without one.

    Raises ExportError if the file can't be run, or defines neither function.
    """
    return None if spec.inputs_from is None else _load(spec.inputs_from)


def has_custom_components(spec: ExportSpec) -> bool:
    """Whether the target's own file says which graphs there are."""
    custom = custom_inputs(spec)
    return custom is not None and custom.has_components


@cache
def _load(path: str) -> CustomInputs:
    # A name that no other module has: not that of a package which the file may be called like.
    name = f"{_FIELD}_{re.sub(r'[^a-z0-9]+', '_', path.lower())}"
    found = importlib.util.spec_from_file_location(name, Path(path).absolute())
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module
    with _blamed(path):
        found.loader.exec_module(module)
    functions = [getattr(module, name, None) for name in (_SAMPLE_INPUTS, _COMPONENTS)]
    if not any(map(callable, functions)):
        raise ExportError(
            _FIELD,
            f"{path} defines neither `{_SAMPLE_INPUTS}` nor `{_COMPONENTS}`",
            f"Write `def {_SAMPLE_INPUTS}(model, tokenizer)`; {_REMEDY}",
        )
    return CustomInputs(path, *functions)


@contextmanager
def _blamed(path: str) -> Iterator[None]:
    """Turn whatever the file raises into an ExportError with the line that raised it."""
    try:
        yield
    except ExportError:
        raise
    except Exception as error:  # code of anyone can raise anything
        line = _line(error, str(Path(path).absolute()))
        where = path if line is None else f"{path}, line {line}"
        raise ExportError(
            _FIELD, f"fails in {where}: {summary(error)}", "The whole error is above"
        ) from error


def _line(error: Exception, file: str) -> int | None:
    """The last line of `file` that the error came through."""
    if isinstance(error, SyntaxError) and error.filename == file:
        return error.lineno
    frames = traceback.extract_tb(error.__traceback__)
    return next((frame.lineno for frame in reversed(frames) if frame.filename == file), None)


def _shown(value: object) -> str:
    text = repr(value) if value is None or isinstance(value, (str, int, float)) else ""
    return text[:40] or f"a {type(value).__name__}"
