"""`python -m model_export.exporter REQUEST CHECKPOINT ARTIFACT PROBE [ROOT...]`: an export.

Each ROOT is a folder that the file of `inputs_from` may import from.

Exit code 0, or 1 with one line at the end of stderr that says what to do.
"""

from __future__ import annotations

import sys
import traceback
from pathlib import Path

from model_export.exporter import hermetic
from model_export.exporter.errors import ExportError
from model_export.spec import ExportRequest


def main(argv: list[str]) -> int:
    """Run the export that the request file asks for."""
    request_file, checkpoint, artifact, probe, *roots = map(Path, argv)
    # Behind what is installed, which nothing of the repository may stand in for.
    sys.path += [str(root.absolute()) for root in roots]
    guard = hermetic.enter(Path.cwd() / ".private")
    try:
        request = ExportRequest.from_json(request_file.read_text(encoding="utf-8"))
        if request.spec.quantizer is not None or request.adapter is not None:
            hermetic.pin_computation()
        # Imported after the environment is fixed: torch reads it while it loads.
        from model_export.exporter.pipeline import run_export

        run_export(request, checkpoint, artifact, probe)
        guard.raise_if_used()
    except ExportError as error:
        if error.__cause__ is not None:
            traceback.print_exception(error.__cause__)
        print(error, file=sys.stderr)
        return 1
    except Exception as error:
        traceback.print_exc()
        print(
            f"The export process failed with {type(error).__name__}: {error}".splitlines()[0],
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
