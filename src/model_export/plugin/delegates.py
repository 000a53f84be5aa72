"""What ExecuTorch's delegates need: their resolves, and what they can't be given.

Free of Pants, and of every package that a delegate comes with.
"""

from __future__ import annotations

from typing import Mapping

from model_export.plugin.field_errors import SpecError
from model_export.spec import ExportSpec

# The delegates whose packages aren't those of the format's own resolve.
_RESOLVES: Mapping[str, str] = {"cuda": "executorch-cuda", "mlx": "executorch-mlx"}


def default_resolve(spec: ExportSpec) -> str:
    """The resolve of an export whose target names none."""
    return _RESOLVES.get(spec.config.get("backend", ""), spec.export_format)


def check_delegate(spec: ExportSpec) -> None:
    """Raise SpecError for settings that don't go with `config['backend']`."""
    backend = spec.config.get("backend")
    if backend not in _RESOLVES:
        return
    if spec.quantizer is not None:
        raise SpecError(
            "quantizer",
            f"marks the graph for XNNPACK's kernels, which config['backend'] {backend!r} doesn't "
            "have",
            "Remove it, or use 'xnnpack'",
        )
    if backend == "mlx" and spec.has_static_cache:
        raise SpecError(
            "generation_config['cache_implementation']",
            "is 'static', which MLX can't be lowered to",
            "Remove it: a cache that grows is what MLX has",
        )
    if backend == "cuda" and spec.dtype != "bfloat16":
        raise SpecError(
            "dtype",
            f"is {spec.dtype!r}, and ExecuTorch's CUDA backend computes in bfloat16 alone",
            "Write dtype='bfloat16'",
        )
