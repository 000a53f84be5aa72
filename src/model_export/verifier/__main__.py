"""`python -m model_export.verifier REQUEST ARTIFACT PROBE REPORT`: the verification process.

REQUEST is JSON: `{"tolerance": {"max_rel": 0.01}}`. Exit code 0 whenever there is a verdict, which
REPORT then says, passed or not; 1 with one line at the end of stderr where none could be reached.
"""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path

from model_export.exporter import hermetic
from model_export.exporter.errors import ExportError
from model_export.verifier.errors import VerificationError


def main(argv: list[str]) -> int:
    """Run the verification that the request file asks for."""
    request_file, artifact, probe, report = map(Path, argv)
    guard = hermetic.enter(Path.cwd() / ".private")
    try:
        request = json.loads(request_file.read_text(encoding="utf-8"))
        # Imported after the environment is fixed: runtimes read it while they load.
        from model_export.verifier.report_files import write_reports
        from model_export.verifier.verification import verify

        write_reports(verify(artifact, probe, request.get("tolerance") or {}), report)
        guard.raise_if_used()
    except (VerificationError, ExportError) as error:
        print(error, file=sys.stderr)
        return 1
    except Exception as error:
        traceback.print_exc()
        print(
            f"The verification failed with {type(error).__name__}: {error}".splitlines()[0],
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
