"""The errors of the runtime, each with what to do about it."""

from __future__ import annotations


class RuntimeModelError(Exception):
    """Something that a loaded artifact can't do: what, why and the remedy, in one line."""


class ArtifactError(RuntimeModelError):
    """A folder that is no artifact this runtime can load."""


class InputError(RuntimeModelError):
    """An input that the artifact doesn't take, by name, dtype or shape."""
