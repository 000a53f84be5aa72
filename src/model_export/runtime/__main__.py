"""Starts the command line of `cli`."""

from __future__ import annotations

import sys

from model_export.runtime.cli import main

if __name__ == "__main__":
    sys.exit(main())
