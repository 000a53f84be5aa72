"""Checks of what verification is told: its bounds, and whether the artifact can run at all."""

from __future__ import annotations

import math
from typing import Any, Dict, Mapping, Optional

from model_export.plugin.field_errors import SpecError, nearest, require_mapping

# What each bound limits; docs/verification.md has their defaults.
TOLERANCE_KEYS: Mapping[str, str] = {
    "max_abs": "largest absolute difference of an output",
    "max_rel": "largest difference of an output, relative to its largest value",
    "cosine": "smallest cosine of an output and the expected one",
    "argmax": "smallest share of positions whose largest logit is the expected one",
    "kl": "largest mean KL divergence of the next token's distribution, in nats",
    "tokens": "smallest share of generated tokens that are the expected ones",
}
_AT_MOST_ONE = ("argmax", "cosine", "tokens")
_ZERO_ALLOWED = ("argmax", "tokens")
_ALIASES: Mapping[str, str] = {
    "abs": "max_abs",
    "agreement": "argmax",
    "atol": "max_abs",
    "cosine_similarity": "cosine",
    "kl_divergence": "kl",
    "rel": "max_rel",
    "rtol": "max_rel",
    "token_agreement": "tokens",
}


def check_tolerance(value: Any) -> Dict[str, float]:
    """The bounds of a `tolerance` field as floats; raises SpecError for one that bounds nothing."""
    bounds = {}
    for key, bound in require_mapping("tolerance", value, "a dict like {'max_abs': 1e-3}").items():
        path = f"tolerance[{key!r}]"
        if key not in TOLERANCE_KEYS:
            raise SpecError(path, "is no bound", nearest(key, TOLERANCE_KEYS, _ALIASES))
        if isinstance(bound, bool) or not isinstance(bound, (int, float)):
            raise SpecError(path, f"must be a number, not {bound!r}", "Write one such as 1e-3")
        _check_range(path, key, float(bound))
        bounds[key] = float(bound)
    return bounds


def _check_range(path: str, key: str, bound: float) -> None:
    low = bound >= 0 if key in _ZERO_ALLOWED else bound > 0
    high = bound <= 1 if key in _AT_MOST_ONE else math.isfinite(bound)
    if low and high:
        return
    left = "0 <=" if key in _ZERO_ALLOWED else "0 <"
    right = " <= 1" if key in _AT_MOST_ONE else ""
    raise SpecError(path, f"is {bound!r}", f"It is the {TOLERANCE_KEYS[key]}: {left} {key}{right}")


def check_verifiable(
    export_format: str, dtype: str, skip_verify: bool, tolerance: Optional[Mapping[str, Any]]
) -> None:
    """Raise SpecError for an artifact that no runtime here runs, and for bounds nobody reads."""
    if skip_verify and tolerance is not None:
        raise SpecError("tolerance", "has no effect with skip_verify=True", "Remove one of the two")
    # ONNX Runtime 1.32.0: NOT_IMPLEMENTED, its CPU provider has no kernel for bfloat16.
    if export_format == "onnx" and dtype == "bfloat16" and not skip_verify:
        raise SpecError(
            "dtype",
            "is 'bfloat16', which ONNX Runtime doesn't run on a CPU, so that the artifact can't be "
            "verified",
            "Use 'float16' or 'float32', or set skip_verify=True and run it on another provider",
        )
