"""Writes a verdict as `report.json` (for tools), `report.txt` (for people) and `junit.xml` (CI)."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from model_export.verifier.results import CaseResult, Check, Verdict

JSON_FILE = "report.json"
TEXT_FILE = "report.txt"
JUNIT_FILE = "junit.xml"

# The name of the test suite, until someone who knows the target's address replaces it.
SUITE = "artifact"
_CACHE = "cache."


def write_reports(verdict: Verdict, folder: Path) -> None:
    """Write all three below `folder`, which is made if need be."""
    folder.mkdir(parents=True, exist_ok=True)
    document = json.dumps(_document(verdict), indent=2, sort_keys=True, allow_nan=False)
    (folder / JSON_FILE).write_text(document + "\n", encoding="utf-8")
    (folder / TEXT_FILE).write_text("\n".join(_lines(verdict)) + "\n", encoding="utf-8")
    tree = ElementTree.ElementTree(_suites(verdict))
    ElementTree.indent(tree)
    tree.write(folder / JUNIT_FILE, encoding="utf-8", xml_declaration=True)


def _document(verdict: Verdict) -> dict[str, Any]:
    return {
        "passed": verdict.failure is None,
        "failure": verdict.failure,
        "unexecuted": verdict.unexecuted,
        "tolerance": dict(verdict.tolerance),
        "cases": [
            {
                "component": case.component,
                "case": case.case,
                "passed": case.failure is None,
                "seconds": round(case.seconds, 3),
                "checks": [
                    {
                        "name": check.name,
                        "failure": check.failure,
                        "figures": {name: _json(value) for name, value in check.figures.items()},
                    }
                    for check in case.checks
                ],
            }
            for case in verdict.cases
        ],
    }


def _json(value: float) -> float | str:
    """JSON has no infinity and no NaN."""
    return value if math.isfinite(value) else str(value)


def _lines(verdict: Verdict) -> Iterator[str]:
    if verdict.failure is None:
        yield f"PASSED: {len(verdict.cases)} cases"
    else:
        yield f"FAILED: {verdict.failure}"
    if verdict.unexecuted is not None:
        yield f"NOT EXECUTED: {verdict.unexecuted}"
    bounds = ", ".join(f"{name} {value:g}" for name, value in verdict.tolerance.items())
    if bounds and verdict.unexecuted is None:
        yield f"Bounds: {bounds}"
    for case in verdict.cases:
        yield ""
        outcome = "passed" if case.failure is None else "FAILED"
        yield f"{case.component}: {case.case}: {outcome} ({case.seconds:.2f} s)"
        for label, check in _folded(case):
            mark = " " if check.failure is None else "!"
            figures = "  ".join(f"{name} {value:.3g}" for name, value in check.figures.items())
            yield f"  {mark} {label:<40} {figures}".rstrip()
        yield from (f"    {check.failure}" for check in case.checks if check.failure)


def _folded(case: CaseResult) -> Iterator[tuple[str, Check]]:
    """The checks by name, those of a cache's tensors as the worst of each kind of output."""
    caches: dict[str, list[Check]] = {}
    for check in case.checks:
        prefix, mark, _ = check.name.partition(_CACHE)
        if mark:
            caches.setdefault(prefix + mark, []).append(check)
        else:
            yield check.name, check
    for prefix, checks in caches.items():
        failed = next((check.failure for check in checks if check.failure), None)
        yield f"{prefix}* ({len(checks)})", Check(prefix, failed, _worst(checks))


def _worst(checks: Sequence[Check]) -> Mapping[str, float]:
    names = dict.fromkeys(name for check in checks for name in check.figures)
    return {
        name: (min if name == "cosine" else max)(
            check.figures[name] for check in checks if name in check.figures
        )
        for name in names
    }


def _suites(verdict: Verdict) -> ElementTree.Element:
    failed = [case for case in verdict.cases if case.failure is not None]
    counts = {
        "tests": str(len(verdict.cases) + (verdict.unexecuted is not None)),
        "failures": str(len(failed)),
        "errors": "0",
        "skipped": "0" if verdict.unexecuted is None else "1",
        "time": f"{sum(case.seconds for case in verdict.cases):.3f}",
    }
    root = ElementTree.Element("testsuites")
    suite = ElementTree.SubElement(root, "testsuite", {"name": SUITE, **counts})
    for case in verdict.cases:
        attributes = {
            "classname": SUITE,
            "name": f"{case.component}: {case.case}",
            "time": f"{case.seconds:.3f}",
        }
        element = ElementTree.SubElement(suite, "testcase", attributes)
        failures = [check.failure for check in case.checks if check.failure is not None]
        if failures:
            child = ElementTree.SubElement(element, "failure", {"message": failures[0]})
            child.text = "\n".join(failures)
    if verdict.unexecuted is not None:
        element = ElementTree.SubElement(
            suite, "testcase", {"classname": SUITE, "name": "execution", "time": "0.000"}
        )
        ElementTree.SubElement(element, "skipped", {"message": verdict.unexecuted})
    return root
