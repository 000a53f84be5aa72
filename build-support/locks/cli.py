"""`./pants run 3rdparty:compile_locks -- [RESOLVE...] [--check] [--upgrade]`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Sequence

from locks.check import problems
from locks.compile import CompileError, compile_locks
from locks.resolves import UnknownResolveError, chosen, locked_elsewhere


def main(arguments: Sequence[str] | None = None) -> int:
    """Compiles or checks the locks of the repository that it runs in; returns an exit status."""
    parser = argparse.ArgumentParser(
        prog="compile_locks",
        description="Compile 3rdparty/RESOLVE/lock.txt from requirements.in (default: all).",
    )
    parser.add_argument("resolves", nargs="*", metavar="RESOLVE")
    parser.add_argument("--check", action="store_true", help="change nothing; needs no network")
    parser.add_argument("--upgrade", action="store_true", help="don't keep the versions locked now")
    options = parser.parse_args(arguments)
    root = Path.cwd()
    try:
        resolves = chosen(options.resolves)
        if options.check and not options.resolves:
            resolves = (*resolves, *locked_elsewhere(root))
        if not options.check:
            compile_locks(root, resolves, upgrade=options.upgrade)
        found = problems(root, resolves)
    except (UnknownResolveError, CompileError) as error:
        found = (str(error),)
    for line in found:
        print(line, file=sys.stderr)
    if not found:
        print(f"{len(resolves)} locks belong to their requirements.in")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
