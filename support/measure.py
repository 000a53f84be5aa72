"""`python -m support.measure FORMAT OUTPUT [FAMILY...]`: exports and verifies every family.

Each export and each verification runs the main function of the process that a build would run, in a
process of its own, forked where torch and transformers are imported already: that is half of the
time. OUTPUT gets JSON: `measurements`, a list of `Measurement`s, and `families`, the names of all.
"""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from multiprocessing.context import ForkServerContext
from pathlib import Path

from model_export.plugin.field_errors import SpecError
from model_export.spec import CheckpointOrigin, ExportRequest, Toolchain
from support.families import FAMILIES, Family
from support.measurement import REFUSED, VERIFIED, WRONG, Measurement
from support.modes import MODES, Mode, quantized_mode
from support.quantizers import QUANTIZERS, Quantizer

_TIMEOUT_SECONDS = 900
_PRELOADED = (
    "model_export.exporter.pipeline",
    "model_export.exporter.backends.{}",
    "model_export.verifier.verification",
)


def measure(export_format: str, names: list[str], quantized: bool = True) -> Iterator[Measurement]:
    """Export and verify the families called `names` (all if empty) in all of their modes.

    With `quantized` also once with each quantizer of the format.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([module.format(export_format) for module in _PRELOADED])
    for family in FAMILIES:
        if names and family.name not in names:
            continue
        with tempfile.TemporaryDirectory() as folder:
            family.save_checkpoint(Path(folder, "checkpoint"))
            for mode, quantizer in _combinations(family, export_format, quantized):
                yield _measure(context, family, mode, quantizer, export_format, Path(folder))


def _combinations(
    family: Family, export_format: str, quantized: bool
) -> Iterator[tuple[Mode, Quantizer | None]]:
    for mode in MODES:
        if mode.fits(family):
            yield mode, None
    for quantizer in QUANTIZERS if quantized else ():
        if export_format in quantizer.formats:
            yield quantized_mode(family), quantizer


def _measure(
    context: ForkServerContext,
    family: Family,
    mode: Mode,
    quantizer: Quantizer | None,
    export_format: str,
    checkpoint: Path,
) -> Measurement:
    def outcome(kind: str, reason: str = "") -> Measurement:
        name = "" if quantizer is None else quantizer.name
        return Measurement(family.name, mode.name, export_format, kind, reason, name)

    try:
        spec = mode.spec(export_format, family, quantizer)
    except SpecError as error:
        return outcome(REFUSED, str(error))
    request = ExportRequest(
        spec,
        CheckpointOrigin("random", family.name),
        # Says nothing of this run: the table is about the pins of the whole repository.
        Toolchain(export_format, "0" * 64),
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "request.json").write_text(request.to_json(), encoding="utf-8")
        (folder / "verify.json").write_text("{}", encoding="utf-8")
        problem = _run(
            context,
            folder,
            "model_export.exporter.__main__",
            "request.json",
            f"{checkpoint}/checkpoint",
            "artifact",
            "probe",
        )
        if problem is not None:
            return outcome(REFUSED, problem)
        problem = _run(
            context,
            folder,
            "model_export.verifier.__main__",
            "verify.json",
            "artifact",
            "probe",
            "report",
        )
        if problem is not None:
            return outcome(WRONG, problem)
        failure = json.loads((folder / "report" / "report.json").read_text())["failure"]
        return outcome(VERIFIED) if failure is None else outcome(WRONG, failure)


def _run(context: ForkServerContext, folder: Path, module: str, *argv: str) -> str | None:
    """Run the main function of a module of ours in `folder`; its last line if it fails."""
    log = folder / "stderr"
    process = context.Process(target=_child, args=(module, argv, str(folder), str(log)))
    process.start()
    process.join(_TIMEOUT_SECONDS)
    if process.is_alive():
        process.kill()
        process.join()
        return f"no end after {_TIMEOUT_SECONDS} s"
    if process.exitcode == 0:
        return None
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    last = lines[-1].strip() if lines else "no message"
    return last if process.exitcode == 1 else f"exit code {process.exitcode}: {last}"


def _child(module: str, argv: tuple[str, ...], folder: str, log: str) -> None:
    os.chdir(folder)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    sys.exit(importlib.import_module(module).main(list(argv)))


def main(argv: list[str]) -> int:
    """Measure, saying on stderr what came out of each."""
    export_format, output, *names = argv
    families = [family.name for family in FAMILIES]
    unknown = set(names) - set(families)
    if unknown:
        print(f"No family is called {', '.join(sorted(unknown))}.", file=sys.stderr)
        return 2
    found = []
    for measurement in measure(export_format, names):
        print(
            f"{export_format}, {measurement.family}, {measurement.mode}"
            f" {measurement.quantizer}: {measurement.outcome} {measurement.reason}",
            file=sys.stderr,
            flush=True,
        )
        found.append(asdict(measurement))
    document = {"families": families, "measurements": found}
    Path(output).write_text(json.dumps(document, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
