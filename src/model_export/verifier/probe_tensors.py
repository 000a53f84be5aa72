"""The tensors of a probe, read one at a time."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from safetensors import SafetensorError, safe_open

from model_export.probe import TENSORS_FILE
from model_export.runtime.graph import Array
from model_export.verifier.errors import VerificationError


class ProbeTensors:
    """A context manager over `probe.safetensors`; half precision is stored as float32.

    The file is mapped, and nothing of it is kept: the largest probe needs no more memory than its
    largest case.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / TENSORS_FILE
        self._file: Any = None

    def __enter__(self) -> ProbeTensors:
        try:
            self._file = safe_open(self._path, framework="numpy")
            self._file.__enter__()
        except (OSError, SafetensorError) as error:
            raise VerificationError(
                f"The probe's {TENSORS_FILE} can't be read ({error}). Export again."
            ) from error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.__exit__(kind, error, trace)

    def get(self, key: str) -> Array:
        """One tensor. Raises VerificationError if the probe doesn't have it."""
        try:
            tensor: Array = self._file.get_tensor(key)
        except SafetensorError as error:
            raise VerificationError(
                f"The probe names a tensor {key!r} that {TENSORS_FILE} lacks. Export again."
            ) from error
        return tensor

    def get_all(self, keys: Mapping[str, str]) -> dict[str, Array]:
        """The tensors of a case by their names."""
        return {name: self.get(key) for name, key in keys.items()}

    def shape(self, key: str) -> tuple[int, ...]:
        """The shape of a tensor, which is not read."""
        return tuple(self._file.get_slice(key).get_shape())

    def step(self, key: str, step: int) -> Array:
        """`tensor[:, step]` of one tensor, the rest of which is not read."""
        part: Array = self._file.get_slice(key)[:, step : step + 1]
        return part[:, 0]
