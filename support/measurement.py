"""What is measured of one family in one mode and format; standard library only."""

from __future__ import annotations

from dataclasses import dataclass

VERIFIED, REFUSED, WRONG = "verified", "refused", "wrong"


@dataclass(frozen=True)
class Measurement:
    """What became of one family in one mode, quantized or not (`quantizer` is empty).

    `outcome` is "verified"; "refused" where the export ended with an error; "wrong" where an
    artifact came out and the verification failed it. `reason` is the last line of either.
    """

    family: str
    mode: str
    export_format: str
    outcome: str
    reason: str = ""
    quantizer: str = ""
