"""How far an artifact may be from the eager model: one table, by dtype and quantizer family.

`docs/verification.md` shows what was measured for each row. A target changes single bounds with
`tolerance={...}`.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from model_export.quantizer_table import is_weight_only, quantizers_of
from model_export.verifier.errors import VerificationError


@dataclass(frozen=True)
class Tolerance:
    """The bounds of one artifact; every one of them has to hold.

    - `max_abs`: the largest |difference| of an output's element.
    - `max_rel`: the same as a share of the output's largest value.
    - `cosine`: the smallest cosine of an output and its expectation.
    - `argmax`: the smallest share of positions of `logits` with the largest value in one place.
    - `kl`: the largest mean KL divergence of next-token distributions in a generation, in nats.
    - `tokens`: the smallest share of greedy tokens that are the eager model's.
    """

    max_abs: float
    max_rel: float
    cosine: float
    argmax: float
    kl: float
    tokens: float

    def figures(self) -> dict[str, float]:
        """The bounds by name."""
        return asdict(self)


TABLE: Mapping[str, Tolerance] = {
    # Rounding alone: another order of summation, fused operators.
    "float32": Tolerance(1e-2, 1e-4, 1 - 1e-8, 1.0, 1e-6, 1.0),
    # 11 bits of mantissa, rounded after every operator, where eager rounds after others.
    "float16": Tolerance(1.0, 2e-2, 0.9999, 0.98, 5e-4, 0.9),
    # 8 bits: the same with eight times the step.
    "bfloat16": Tolerance(8.0, 2e-1, 0.995, 0.9, 2e-2, 0.75),
    # Weights rounded to float16 once, computed in float32 (OpenVINO's `compress_to_fp16`).
    "float16 weights": Tolerance(1.0, 1e-2, 0.99999, 0.98, 5e-5, 0.9),
    # Weights rounded to 256 levels a channel or group, activations left alone.
    "8-bit weights": Tolerance(10.0, 3e-1, 0.99, 0.7, 5e-2, 0.7),
    # Activations rounded as well, to ranges of each call (dynamic) or of a calibration (static).
    "int8": Tolerance(50.0, 8e-1, 0.9, 0.4, 1.5, 0.35),
    # 16 levels a group of weights.
    "4-bit weights": Tolerance(50.0, 8e-1, 0.9, 0.4, 1.0, 0.4),
}


@dataclass(frozen=True)
class Bounds:
    """The row of the table that an artifact is held to, after the target's own changes.

    `exact_tokens`: nothing is quantized and nothing is half precision, so every token has to be the
    eager model's. `quantized`: tokens and KL are shares and means instead of single decisions.
    """

    row: str
    tolerance: Tolerance
    exact_tokens: bool
    quantized: bool

    def allowed(self, scale: float) -> float:
        """The largest difference of an element of an output whose largest value is `scale`."""
        return min(self.tolerance.max_abs, self.tolerance.max_rel * scale)


def choose_bounds(spec: Mapping[str, Any], overrides: Mapping[str, float]) -> Bounds:
    """The bounds for an artifact of the export `spec` (a manifest's), changed by `overrides`.

    Raises VerificationError for an override that the table doesn't have.
    """
    row = _row(spec)
    known = [field.name for field in fields(Tolerance)]
    for name in overrides:
        if name not in known:
            nearest = difflib.get_close_matches(name, known, n=1)
            hint = f"Did you mean {nearest[0]!r}?" if nearest else f"Known: {', '.join(known)}."
            raise VerificationError(f"tolerance[{name!r}] is no bound. {hint}")
    quantized = bool(spec.get("quantizer"))
    return Bounds(row, replace(TABLE[row], **overrides), row == "float32", quantized)


def _row(spec: Mapping[str, Any]) -> str:
    quantizer = spec.get("quantizer")
    if quantizer:
        return _quantized_row(quantizer)
    configs = (spec["config"], *spec.get("component_config", {}).values())
    if spec["dtype"] == "float32" and any(item.get("compress_to_fp16") for item in configs):
        return "float16 weights"
    return str(spec["dtype"])


def _quantized_row(quantizer: Mapping[str, Any]) -> str:
    """By what is rounded: weights alone (weight compression, by its `mode`), activations as well.

    Of several components' quantizers the one with the widest bounds: what one rounds, the others
    are fed with.
    """
    rows = [_row_of(item) for item in quantizers_of(quantizer)]
    return max(rows, key=lambda row: (TABLE[row].kl, TABLE[row].max_rel))


def _row_of(quantizer: Mapping[str, Any]) -> str:
    if not is_weight_only(quantizer):
        return "int8"
    return "8-bit weights" if "8" in quantizer["mode"] else "4-bit weights"
