"""One verification from an artifact and its probe to a verdict."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from model_export.manifest import MANIFEST_FILE, Manifest, ManifestError
from model_export.probe import Probe, read_probe
from model_export.runtime.decoder import open_decoder
from model_export.runtime.errors import RuntimeModelError
from model_export.runtime.graph import Graph, open_graph
from model_export.verifier.errors import VerificationError
from model_export.verifier.files import check_files
from model_export.verifier.generation_cases import GENERATION, run_generation
from model_export.verifier.graph_cases import run_case
from model_export.verifier.probe_tensors import ProbeTensors
from model_export.verifier.results import ARTIFACT, CaseResult, Check, Verdict
from model_export.verifier.signature import check_signature
from model_export.verifier.structure.found import FoundGraph
from model_export.verifier.tolerance import Bounds, choose_bounds

# Where a decoder shares the graphs that are still open (runtime/graphs/dynamo.py), and loading one
# takes longer than the cases do. Elsewhere both at once would only take twice the memory.
_SHARED_FORMATS = ("dynamo",)


def verify(artifact: Path, probe_folder: Path, overrides: Mapping[str, float]) -> Verdict:
    """Hold the artifact against the probe that its export recorded.

    The order is that of trust: files, then what the graphs say about themselves, then what they
    compute. A stage that fails ends the verification, because the next one would load what the
    failed one found damaged. Where the runtime of this platform can't run the graphs it ends before
    they compute anything, and the verdict says so. `overrides` change bounds of the table by name.

    Raises VerificationError for an unknown bound or a probe that can't be used.
    """
    try:
        manifest = Manifest.from_json((artifact / MANIFEST_FILE).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ManifestError) as error:
        failure = f"`{MANIFEST_FILE}` can't be read: {str(error).rstrip('.')}"
        return Verdict((CaseResult(ARTIFACT, "manifest", (Check("manifest", failure),), 0.0),), {})
    bounds = choose_bounds(manifest.spec, overrides)
    probe = _read(probe_folder)
    cases: list[CaseResult] = []
    found: dict[str, FoundGraph] = {}
    with ProbeTensors(probe_folder) as tensors:
        for stage in _stages(artifact, manifest, probe, tensors, bounds, found):
            cases += stage
            if any(case.failure is not None for case in cases):
                break
    return Verdict(tuple(cases), bounds.tolerance.figures(), _unexecuted(found))


def _unexecuted(found: Mapping[str, FoundGraph]) -> str | None:
    reason = next((graph.unrunnable for graph in found.values() if graph.unrunnable), None)
    return None if reason is None else f"execution not verified on this platform: {reason}"


def _read(folder: Path) -> Probe:
    try:
        return read_probe(folder)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise VerificationError(f"The probe can't be read ({error}). Export again.") from error


def _stages(
    artifact: Path,
    manifest: Manifest,
    probe: Probe,
    tensors: ProbeTensors,
    bounds: Bounds,
    found: dict[str, FoundGraph],
) -> Iterator[Iterator[CaseResult]]:
    opened: list[Graph] = []
    yield _folder(artifact, manifest, probe)
    yield _signatures(artifact, manifest, probe, tensors, found)
    if _unexecuted(found) is not None:
        return
    yield _graphs(artifact, manifest, probe, tensors, found, bounds, opened)
    yield _generations(artifact, manifest, probe, tensors, bounds)


def _folder(artifact: Path, manifest: Manifest, probe: Probe) -> Iterator[CaseResult]:
    start = time.monotonic()
    checks = check_files(artifact, manifest)
    yield CaseResult(ARTIFACT, "files", checks, time.monotonic() - start)
    yield CaseResult(ARTIFACT, "probe", (_coverage(manifest, probe),), 0.0)


def _coverage(manifest: Manifest, probe: Probe) -> Check:
    """Nothing is handed out that the probe says nothing about."""
    built = [component.name for component in manifest.components]
    probed = {case.component for case in probe.graphs}
    failure = None
    for name in built:
        if name not in probed:
            failure = f"component `{name}` has no case in the probe: it can't be verified"
    for name in sorted(probed - set(built)):
        failure = f"component `{name}` of the probe isn't in the artifact"
    return Check("components", failure, {"components": len(built)})


def _signatures(
    artifact: Path,
    manifest: Manifest,
    probe: Probe,
    tensors: ProbeTensors,
    found: dict[str, FoundGraph],
) -> Iterator[CaseResult]:
    """Fills `found` with what each component's file says."""
    for record in manifest.components:
        start = time.monotonic()
        cases = [case for case in probe.graphs if case.component == record.name]
        checks, graph = check_signature(
            artifact,
            manifest.export_format,
            record,
            manifest.spec_of(record.name),
            cases,
            tensors,
        )
        if graph is not None:
            found[record.name] = graph
        yield CaseResult(record.name, "signature", checks, time.monotonic() - start)


def _graphs(
    artifact: Path,
    manifest: Manifest,
    probe: Probe,
    tensors: ProbeTensors,
    found: Mapping[str, FoundGraph],
    bounds: Bounds,
    opened: list[Graph],
) -> Iterator[CaseResult]:
    """Leaves in `opened` the graphs that the generations share."""
    for record in manifest.components:
        start = time.monotonic()
        try:
            graph = open_graph(artifact, manifest.export_format, record)
        except RuntimeModelError as error:
            check = Check("load", str(error).rstrip("."))
            yield CaseResult(record.name, "load", (check,), time.monotonic() - start)
            continue
        yield CaseResult(record.name, "load", (Check("load"),), time.monotonic() - start)
        for case in probe.graphs:
            if case.component == record.name:
                yield run_case(graph, case, tensors, found[record.name].states, bounds)
        if manifest.export_format in _SHARED_FORMATS:
            opened.append(graph)
        # One graph's weights at a time.
        del graph


def _generations(
    artifact: Path, manifest: Manifest, probe: Probe, tensors: ProbeTensors, bounds: Bounds
) -> Iterator[CaseResult]:
    """All in one session: what one leaves behind is what the next one finds."""
    if not probe.generations:
        return
    start = time.monotonic()
    try:
        decoder = open_decoder(artifact, manifest)
    except RuntimeModelError as error:
        check = Check("load", str(error).rstrip("."))
        yield CaseResult(GENERATION, "load", (check,), time.monotonic() - start)
        return
    yield CaseResult(GENERATION, "load", (Check("load"),), time.monotonic() - start)
    for case in probe.generations:
        yield run_generation(decoder, case, artifact, manifest, tensors, bounds)
