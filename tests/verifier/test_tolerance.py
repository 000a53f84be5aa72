"""Which row of the table an export is held to."""

from __future__ import annotations

from typing import Any

import pytest

from model_export.verifier.errors import VerificationError
from model_export.verifier.tolerance import TABLE, choose_bounds


def _spec(**fields: Any) -> dict[str, Any]:
    return {"dtype": "float32", "config": {}, **fields}


def _weights(mode: str) -> dict[str, Any]:
    config = "NNCFWeightCompressionConfig"
    return {"type": "NNCFOpenVINOQuantizer", "config": config, "mode": mode}


_FP8 = {
    "type": "NNCFOpenVINOQuantizer",
    "config": "NNCFQuantizationConfig",
    "mode": "FP8_E4M3",
}


@pytest.mark.parametrize(
    ("spec", "row"),
    [
        (_spec(), "float32"),
        (_spec(dtype="bfloat16"), "bfloat16"),
        (_spec(config={"compress_to_fp16": True}), "float16 weights"),
        (_spec(quantizer=_weights("INT8_SYM")), "8-bit weights"),
        (_spec(quantizer=_weights("MXFP8_E4M3")), "8-bit weights"),
        (_spec(quantizer=_weights("INT4_SYM")), "4-bit weights"),
        (_spec(quantizer=_weights("NF4")), "4-bit weights"),
        (_spec(quantizer=_FP8), "int8"),
        (_spec(quantizer={"type": "PT2EQuantizer", "quantizer": "X86InductorQuantizer"}), "int8"),
        (
            _spec(quantizer={"prefill": _weights("INT8_SYM"), "decode": _weights("INT4_SYM")}),
            "4-bit weights",
        ),
        (_spec(quantizer={"prefill": _weights("INT8_SYM"), "decode": _FP8}), "int8"),
    ],
)
def test_rows(spec: dict[str, Any], row: str) -> None:
    bounds = choose_bounds(spec, {})
    assert bounds.row == row
    assert bounds.tolerance == TABLE[row]
    assert bounds.exact_tokens is (row == "float32")


def test_a_target_changes_single_bounds() -> None:
    bounds = choose_bounds(_spec(), {"max_rel": 0.5})
    assert bounds.tolerance.max_rel == 0.5
    assert bounds.tolerance.cosine == TABLE["float32"].cosine


def test_an_unknown_bound_names_the_nearest() -> None:
    with pytest.raises(VerificationError, match="Did you mean 'max_abs'"):
        choose_bounds(_spec(), {"max_abss": 1.0})
