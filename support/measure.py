"""`python -m support.measure FORMAT OUTPUT [FAMILY...]`: exports and verifies every family.

Each export and each verification is the process that a build would run. OUTPUT gets a JSON list of
`Measurement`s.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from support.families import FAMILIES, Family
from support.modes import MODES, Mode

from model_export.spec import CheckpointOrigin, ExportRequest, Toolchain

VERIFIED, REFUSED, WRONG = "verified", "refused", "wrong"
_TIMEOUT_SECONDS = 900


@dataclass(frozen=True)
class Measurement:
    """What became of one family in one mode.

    `outcome` is "verified"; "refused" where the export ended with an error; "wrong" where an
    artifact came out and the verification failed it. `reason` is the last line of either.
    """

    family: str
    mode: str
    export_format: str
    outcome: str
    reason: str = ""


def measure(export_format: str, names: list[str]) -> Iterator[Measurement]:
    """Export and verify the families called `names` (all if empty) in all of their modes."""
    for family in FAMILIES:
        if names and family.name not in names:
            continue
        with tempfile.TemporaryDirectory() as folder:
            family.save_checkpoint(Path(folder, "checkpoint"))
            for mode in MODES:
                if family.generates or mode is MODES[0]:
                    yield _measure(family, mode, export_format, Path(folder))


def _measure(family: Family, mode: Mode, export_format: str, checkpoint: Path) -> Measurement:
    request = ExportRequest(
        mode.spec(export_format),
        CheckpointOrigin("random", family.name),
        # Says nothing of this run: the table is about the pins of the whole repository.
        Toolchain(export_format, "0" * 64),
    )

    def outcome(kind: str, reason: str = "") -> Measurement:
        return Measurement(family.name, mode.name, export_format, kind, reason)

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "request.json").write_text(request.to_json(), encoding="utf-8")
        (folder / "verify.json").write_text("{}", encoding="utf-8")
        error = _run(
            folder,
            ["model_export.exporter", "request.json", f"{checkpoint}/checkpoint", "a", "p"],
        )
        if error is not None:
            return outcome(REFUSED, error)
        error = _run(folder, ["model_export.verifier", "verify.json", "a", "p", "report"])
        if error is not None:
            return outcome(WRONG, error)
        failure = json.loads((folder / "report" / "report.json").read_text())["failure"]
        return outcome(VERIFIED) if failure is None else outcome(WRONG, failure)


def _run(folder: Path, argv: list[str]) -> str | None:
    """Run a module of ours in `folder`; the last line of its stderr if it fails."""
    # The modules that this process sees are found from another folder only by absolute paths.
    paths = os.pathsep.join(str(Path(path).resolve()) for path in sys.path if path)
    try:
        done = subprocess.run(
            [sys.executable, "-m", *argv],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": paths},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no end after {_TIMEOUT_SECONDS} s"
    if done.returncode == 0:
        return None
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    last = lines[-1].strip() if lines else "no message"
    return last if done.returncode == 1 else f"exit code {done.returncode}: {last}"


def main(argv: list[str]) -> int:
    """Measure, saying on stderr what came out of each."""
    export_format, output, *names = argv
    found = []
    for measurement in measure(export_format, names):
        print(
            f"{export_format}, {measurement.family}, {measurement.mode}: {measurement.outcome}"
            f" {measurement.reason}",
            file=sys.stderr,
            flush=True,
        )
        found.append(asdict(measurement))
    Path(output).write_text(json.dumps(found, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
