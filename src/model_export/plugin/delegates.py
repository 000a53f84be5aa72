"""What ExecuTorch's delegates need: their resolves and devices, and what they can't be given.

Free of Pants, and of every package that a delegate comes with.
"""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional

from model_export.plugin.field_errors import SpecError
from model_export.spec import ExportSpec

# The delegates whose packages aren't those of the format's own resolve.
_RESOLVES: Mapping[str, str] = {"cuda": "executorch-cuda", "mlx": "executorch-mlx"}


def delegates(
    config: Optional[Mapping[str, Any]],
    component_config: Optional[Mapping[str, Mapping[str, Any]]],
) -> Dict[str, str]:
    """Each delegate that is asked for, by the key that says so."""
    named = {"config['backend']": (config or {}).get("backend")}
    for name, own in (component_config or {}).items():
        named[f"component_config[{name!r}]['backend']"] = own.get("backend")
    return {path: delegate for path, delegate in named.items() if delegate is not None}


def default_resolve(spec: ExportSpec) -> str:
    """The resolve of an export whose target names none."""
    for delegate in delegates(spec.config, spec.component_config).values():
        if delegate in _RESOLVES:
            return _RESOLVES[delegate]
    return spec.export_format


def check_delegates(spec: ExportSpec) -> None:
    """Raise SpecError for settings that don't go with a delegate, or delegates with each other."""
    first: Dict[str, str] = {}
    for path, delegate in delegates(spec.config, spec.component_config).items():
        if delegate in _RESOLVES:
            _check_delegate(path, delegate, spec)
            first.setdefault(delegate, path)
    if len(first) > 1:
        (one, its_path), (another, other_path) = first.items()
        raise SpecError(
            other_path,
            f"is {another!r} and `{its_path}` {one!r}, which no machine has both",
            "Export each with a target of its own, and `components`",
        )


def _check_delegate(path: str, delegate: str, spec: ExportSpec) -> None:
    if spec.quantizer is not None:
        raise SpecError(
            "quantizer",
            f"marks the graph for XNNPACK's kernels, which {path} {delegate!r} doesn't have",
            "Remove it, or use 'xnnpack'",
        )
    if delegate == "mlx" and spec.has_static_cache:
        raise SpecError(
            "generation_config['cache_implementation']",
            "is 'static', which MLX can't be lowered to",
            "Remove it: a cache that grows is what MLX has",
        )
    if delegate == "cuda" and spec.dtype != "bfloat16":
        raise SpecError(
            "dtype",
            f"is {spec.dtype!r}, and ExecuTorch's CUDA backend computes in bfloat16 alone",
            "Write dtype='bfloat16'",
        )
