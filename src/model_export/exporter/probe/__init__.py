"""Records what the eager model says, for the verifier to compare an artifact with."""

from __future__ import annotations

from model_export.exporter.probe.record import record_probe

__all__ = ["record_probe"]
