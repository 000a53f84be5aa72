"""The error of a verification that can't be done; a wrong artifact is a verdict, not an error."""

from __future__ import annotations


class VerificationError(Exception):
    """A request or probe that can't be used: what, why and the remedy, in one line."""
