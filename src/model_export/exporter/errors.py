"""The error that ends an export with one line for the person who asked for it."""

from __future__ import annotations


class ExportError(Exception):
    """An export that can't go on: which field or file is at fault, why, and what to do.

    `subject` is a field of the target (`config['opset_version']`) or a file of the checkpoint;
    `problem` and `remedy` are one sentence each, without the final full stop.
    """

    def __init__(self, subject: str, problem: str, remedy: str) -> None:
        super().__init__(f"`{subject}` {problem}. {remedy}.")
        self.subject = subject
        self.problem = problem
        self.remedy = remedy


def summary(error: BaseException) -> str:
    """An error's type and the first line of its message that says anything, without full stop."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0].rstrip('.')}" if lines else type(error).__name__
