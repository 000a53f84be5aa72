"""The fields of `export_model` that say how its artifact is verified."""

from __future__ import annotations

from typing import Any

from pants.core.goals.test import TestTimeoutField
from pants.engine.target import BoolField
from pants.util.strutil import help_text

from model_export.plugin.fields import CheckedMappingField
from model_export.plugin.verification_checks import TOLERANCE_KEYS, check_tolerance


class SkipVerifyField(BoolField):
    alias = "skip_verify"
    default = False
    help = help_text(
        """
        Hand the artifact out unverified: for one that only runs on a device this machine lacks. Its
        manifest then says `skipped`, and `test` reports it as skipped.
        """
    )


class ToleranceField(CheckedMappingField):
    alias = "tolerance"
    help = help_text(
        f"""
        Bounds of the verification that differ from the defaults for this dtype:
        `{{"max_abs": 1e-3, "tokens": 0.95}}`. docs/verification.md has the defaults and what they
        are for.

        Known: {"; ".join(f"`{key}`, the {meaning}" for key, meaning in TOLERANCE_KEYS.items())}.
        """
    )

    @classmethod
    def check(cls, value: Any) -> None:
        check_tolerance(value)


class VerificationTimeoutField(TestTimeoutField):
    help = help_text(
        """
        Seconds that a verification may take, in `package` as in `test`; the export before it has no
        limit. If unset, `[test].timeout_default`; never more than `[test].timeout_maximum`; no
        limit at all with `--no-test-timeouts`.
        """
    )


class SkipTestsField(BoolField):
    alias = "skip_tests"
    default = False
    help = "If true, `test` leaves this target out. `package` verifies it all the same."
