"""Prints where this process's packages are, for `benchmarks:decode`: its interpreter and its path.

Pants' `run` starts one environment; the contenders need four. Inside a sandbox Pants 2.17.1 can run
programs of any resolve, whose environments stay in its cache: they are asked for their place there.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path


def main() -> None:
    """Print JSON with `python`, and `path`: what lies outside the sandbox."""
    sandbox = Path.cwd().resolve()
    paths = [Path(os.path.realpath(path)) for path in sys.path if path]
    print(
        json.dumps(
            {
                # Not the file itself, a link to the interpreter that the environment was made with.
                "python": os.path.join(os.path.realpath(os.path.dirname(sys.executable)), "python"),
                "path": [str(path) for path in paths if not path.is_relative_to(sandbox)],
            }
        )
    )


if __name__ == "__main__":
    main()
