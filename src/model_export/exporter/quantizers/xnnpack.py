"""XNNPACK's quantizer (executorch 1.3.1), kept from numbers that aren't activations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from executorch.backends.transforms.duplicate_dynamic_quant_chain import (
    DuplicateDynamicQuantChainPass,
)
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
    XNNPACKQuantizer,
    get_symmetric_quantization_config,
)
from transformers.exporters.quantizers import PT2EQuantizer

from model_export.exporter.quantizers.fixed_sizes import FixedSizesKept


class FloatsOnly(XNNPACKQuantizer):
    """Looks at nodes that compute floats, and leaves every scalar where it is.

    Upstream turns the scalars of additions and multiplications into float tensors, those of token
    ids and positions too, so that an index comes out as a float: "tensors used as indices must be
    long, int, byte or bool tensors".
    """

    def __init__(self) -> None:
        super().__init__()
        self.set_filter_function(_computes_floats)

    def transform_for_annotation(self, model: torch.fx.GraphModule) -> torch.fx.GraphModule:
        return model


def _computes_floats(node: torch.fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.is_floating_point()


class OneRangePerProduct(PT2EQuantizer):
    """Gives each product of a dynamic quantization its own range of what it multiplies.

    The engine (transformers 5.24.0) lets the projections of queries, keys and values share one,
    which XNNPACK's partitions can't: "Invalid partition, found dependency cycles".
    """

    def quantize(
        self, model: torch.fx.GraphModule, sample_inputs: dict[str, Any], export_format: Any
    ) -> torch.fx.GraphModule:
        quantized = super().quantize(model, sample_inputs, export_format)
        result = DuplicateDynamicQuantChainPass()(quantized)
        return quantized if result is None else result.graph_module


class XnnpackQuantizer(FixedSizesKept, OneRangePerProduct):
    """Both; the sizes last, because the other's pass takes checks out."""


def xnnpack_quantizer(
    arguments: Mapping[str, Any], samples: list[dict[str, Any]]
) -> XnnpackQuantizer:
    """The quantizer with `get_symmetric_quantization_config(**arguments)` for all of the graph."""
    annotator = FloatsOnly().set_global(get_symmetric_quantization_config(**arguments))
    return XnnpackQuantizer(annotator, samples)
