"""The check of `dtype` against the device that a graph is made for: pairs that no runtime runs.

docs/target.md has the whole table. That this machine can't verify a pair is another matter, which
`skip_verify` settles (`verification_checks.py`).
"""

from __future__ import annotations

from typing import Mapping

from model_export.plugin.field_errors import SpecError
from model_export.spec import ExportSpec

# Execution providers of ONNX Runtime 1.32.0 without bfloat16, and why.
_WITHOUT_BFLOAT16: Mapping[str, str] = {
    "cpu": "ONNX Runtime's CPU provider has no kernel for bfloat16 products",
    "dml": "DirectML has no bfloat16 tensors",
    "webgpu": "WebGPU's shading language has no bfloat16",
}


def check_dtype_pair(spec: ExportSpec) -> None:
    """Raise SpecError for a dtype that the device of `ort_fusions` can't compute in."""
    provider = spec.config.get("ort_fusions")
    reason = _WITHOUT_BFLOAT16.get(str(provider))
    if spec.dtype == "bfloat16" and reason is not None:
        raise SpecError(
            "dtype",
            f"is 'bfloat16', which config['ort_fusions'] of {provider!r} rules out: {reason}",
            "Use 'float16' or 'float32', or fuse for 'cuda'",
        )
