"""Specs for the two formats that torch.export traces and nothing else changes."""

from __future__ import annotations

from typing import Any

from model_export.spec import ExportSpec

# Every key with its default, as the plugin hands them over.
_TRACE_KEYS = {
    "dynamic": False,
    "strict": False,
    "dynamic_shapes": None,
    "prefer_deferred_runtime_asserts_over_guards": False,
}
_DEFAULTS: dict[str, dict[str, Any]] = {
    "dynamo": _TRACE_KEYS,
    "executorch": {
        **_TRACE_KEYS,
        "backend": "xnnpack",
        "alloc_graph_input": True,
        "alloc_graph_output": True,
        "alloc_mutable_buffers": True,
    },
}


def make_spec(export_format: str, config: dict[str, Any], **fields: Any) -> ExportSpec:
    """A spec with every default of `config` written out."""
    assert config.keys() <= _DEFAULTS[export_format].keys()
    return ExportSpec(export_format, {**_DEFAULTS[export_format], **config}, **fields)


def decode_spec(export_format: str, **fields: Any) -> ExportSpec:
    """Dynamic, for generation, with a decode graph that takes several tokens."""
    return make_spec(
        export_format, {"dynamic": True}, for_generation=True, multi_token_decode=True, **fields
    )
