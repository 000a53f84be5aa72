"""NNCF's quantizer of traced graphs, with the sizes that their first trace has fixed."""

from __future__ import annotations

from transformers.exporters.quantizers import NNCFTorchFXQuantizer

from model_export.exporter.quantizers.fixed_sizes import FixedSizesKept


class FixedSizesNNCF(FixedSizesKept, NNCFTorchFXQuantizer):
    """The engine's, and nothing else."""
