"""What a verification found, as frozen values; `report_files` writes them down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

# In place of a component's name where a finding is about the folder.
ARTIFACT = "artifact"


@dataclass(frozen=True)
class Check:
    """One thing that was looked at: `name` (`logits`, `onnx.checker`), and what was measured.

    `failure` is None where it holds, else one sentence without its full stop, which begins with
    what it is about.
    """

    name: str
    failure: str | None = None
    figures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class CaseResult:
    """All checks of one case of one component, the most telling one first."""

    component: str
    case: str
    checks: tuple[Check, ...]
    seconds: float

    @property
    def failure(self) -> str | None:
        """The first failure with the component and the case in front; None if all hold."""
        for check in self.checks:
            if check.failure is not None:
                if self.component == ARTIFACT:
                    return check.failure
                return f"`{self.component}`, {self.case}: {check.failure}"
        return None


@dataclass(frozen=True)
class Verdict:
    """The outcome: every case that was run, and the bounds they were held to.

    `unexecuted` says why nothing was computed, where only the files could be looked at.
    """

    cases: tuple[CaseResult, ...]
    tolerance: Mapping[str, float]
    unexecuted: str | None = None

    @property
    def failure(self) -> str | None:
        """The first failure in the order of the cases; None if the artifact passed."""
        return next((case.failure for case in self.cases if case.failure is not None), None)
