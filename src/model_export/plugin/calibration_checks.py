"""The check of `calibration`: which samples a quantizer observes the model on."""

from __future__ import annotations

from typing import Any, Dict, Mapping

from model_export.plugin.field_errors import SpecError, nearest, require_mapping

DEFAULTS: Mapping[str, int] = {"samples": 64, "seed": 0, "max_length": 128}
_EXAMPLE = 'Write {"files": [":texts"]}'


def check_calibration(value: object) -> Dict[str, Any]:
    """Check `calibration`, every default written out; `files` stay the addresses that they are."""
    given = require_mapping("calibration", value, 'a dict like {"files": [":texts"]}')
    for name in given:
        if name != "files" and name not in DEFAULTS:
            raise SpecError(
                f"calibration[{name!r}]", "is unknown", nearest(name, ("files", *DEFAULTS))
            )
    files = given.get("files")
    if isinstance(files, str) or not isinstance(files, (list, tuple)) or not files:
        raise SpecError("calibration['files']", f"is {files!r}", _EXAMPLE)
    for address in files:
        if not isinstance(address, str) or not address:
            raise SpecError("calibration['files']", f"has {address!r}", _EXAMPLE)
    checked: Dict[str, Any] = {"files": list(files)}
    for name, default in DEFAULTS.items():
        number = given.get(name, default)
        lowest = 0 if name == "seed" else 1
        if isinstance(number, bool) or not isinstance(number, int) or number < lowest:
            raise SpecError(
                f"calibration[{name!r}]", f"is {number!r}", f"Write an int from {lowest} on"
            )
        checked[name] = number
    return checked
