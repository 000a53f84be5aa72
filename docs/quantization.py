"""`./pants run docs:quantization`: rewrites the measured part of `docs/quantization.md`.

The artifacts are measured before this program runs, each format's in its own resolve, and the
measurements lie in `support/` beside it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from support.quality_record import Quality
from support.quality_table import replace_table

_PAGE = Path("docs/quantization.md")
_FORMATS = ("dynamo", "onnx", "openvino", "executorch")


def main() -> int:
    """Read the measurements beside this program and write the table into the repository."""
    here = Path(__file__).resolve().parent.parent / "support"
    measured = [
        Quality(**item)
        for export_format in _FORMATS
        for item in json.loads((here / f"quality_{export_format}.json").read_text(encoding="utf-8"))
    ]
    _PAGE.write_text(replace_table(_PAGE.read_text(encoding="utf-8"), measured), encoding="utf-8")
    print(f"Wrote {_PAGE}: {len(measured)} artifacts.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
