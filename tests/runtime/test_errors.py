"""What is said of an exception that a runtime raised."""

from __future__ import annotations

from model_export.runtime.errors import first_line, last_line


def test_one_line_without_its_full_stop() -> None:
    error = RuntimeError("Exception from a.cpp:3:\nCheck failed.\n\nThe shapes differ.\n")
    assert first_line(error) == "Exception from a.cpp:3:"
    assert last_line(error) == "The shapes differ"


def test_a_silent_exception_is_named() -> None:
    assert first_line(KeyError()) == last_line(KeyError()) == "KeyError"
