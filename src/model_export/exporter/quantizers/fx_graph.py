"""The quantizers that change the traced graph before any conversion, for every backend."""

from __future__ import annotations

from typing import Any

from model_export.exporter.quantizers.quantization import Quantization
from model_export.quantizer_table import own_settings, settings_class


def fx_quantizer(quantization: Quantization) -> Any:
    """The engine's quantizer for a `PT2EQuantizer` or `NNCFTorchFXQuantizer` of the spec.

    Imports what that quantizer needs and nothing else: NNCF alone takes seconds.
    """
    settings, samples = quantization.settings, list(quantization.samples)
    if settings["type"] == "NNCFTorchFXQuantizer":
        from model_export.exporter.quantizers.nncf_config import nncf_config
        from model_export.exporter.quantizers.nncf_fx import FixedSizesNNCF

        return FixedSizesNNCF(nncf_config(settings), samples)
    arguments = own_settings(settings)
    if settings_class(settings) == "XNNPACKQuantizer":
        from model_export.exporter.quantizers.xnnpack import xnnpack_quantizer

        return xnnpack_quantizer(arguments, samples)
    from torchao.quantization.pt2e.quantizer.x86_inductor_quantizer import (
        X86InductorQuantizer,
        get_default_x86_inductor_quantization_config,
    )

    from model_export.exporter.quantizers.pt2e import OnceStoredQuantizer

    config = get_default_x86_inductor_quantization_config(**arguments)
    return OnceStoredQuantizer(X86InductorQuantizer().set_global(config), samples)
