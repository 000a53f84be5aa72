"""`./pants run docs:support`: writes `docs/support.md` from the measurements of all formats.

The measurements are made before this program runs, each family's in each format's resolve, and lie
in `support/` beside it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from support.table import FORMATS, read_measurements, write_table

_PAGE = Path("docs/support.md")


def main() -> int:
    """Read the measurements beside this program and write the page into the repository.

    Raises IncompleteTable.
    """
    here = Path(__file__).resolve().parent.parent / "support"
    documents = {
        export_format: [
            json.loads(path.read_text(encoding="utf-8"))
            for path in sorted(here.glob(f"{export_format}_*.json"))
        ]
        for export_format in FORMATS
    }
    measurements = read_measurements(documents)
    _PAGE.write_text(write_table(measurements), encoding="utf-8")
    verified = sum(item.outcome == "verified" for item in measurements)
    print(f"Wrote {_PAGE}: {verified} of {len(measurements)} verified.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
