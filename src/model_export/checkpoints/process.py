"""How a checkpoint process starts and ends, like an export process."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from model_export.exporter import hermetic
from model_export.exporter.errors import ExportError


def run(main: Callable[[Sequence[str]], None], usage: str) -> None:
    """Call `main` with the command line's arguments in hermetic surroundings; leave the process.

    `usage` ends in the names of the arguments in capitals. An ExportError becomes the last line
    of stderr and exit code 1; another number of arguments gives the usage and exit code 2.
    """
    given = sys.argv[1:]
    if len(given) != sum(word.isupper() for word in usage.split()):
        print(f"usage: {usage}", file=sys.stderr)
        sys.exit(2)
    guard = hermetic.enter(Path.cwd() / ".private")
    try:
        main(given)
        guard.raise_if_used()
    except ExportError as error:
        if error.__cause__ is not None:
            traceback.print_exception(error.__cause__)
        print(error, file=sys.stderr)
        sys.exit(1)
