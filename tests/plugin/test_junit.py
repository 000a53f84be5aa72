"""The XML that CI reads: counts where `.ci/run` looks for them, and the target's address."""

from __future__ import annotations

from xml.etree import ElementTree

from model_export.plugin.junit import crashed, named_after, skipped

VERIFIED = b"""\
<testsuites><testsuite name="artifact" tests="2" failures="1" errors="0" skipped="0" time="1.5">
<testcase classname="artifact" name="decode, batch 3" time="0.5"/>
<testcase classname="artifact" name="greedy"><failure message="differs">step 4</failure></testcase>
</testsuite></testsuites>"""
COUNTS = ("tests", "failures", "errors", "skipped")


def _suite(report: bytes) -> ElementTree.Element:
    suite = ElementTree.fromstring(report).find("testsuite")
    assert suite is not None
    return suite


def test_the_verifiers_report_gets_the_address() -> None:
    suite = _suite(named_after("targets:x@dtype=float16", VERIFIED))
    assert suite.get("name") == "targets:x@dtype=float16"
    assert [suite.get(count) for count in COUNTS] == ["2", "1", "0", "0"]
    cases = suite.findall("testcase")
    assert [case.get("classname") for case in cases] == ["targets:x@dtype=float16"] * 2
    assert [case.get("name") for case in cases] == ["decode, batch 3", "greedy"]
    assert cases[1].findtext("failure") == "step 4"


def test_a_crash_is_one_error_with_text_that_xml_can_hold() -> None:
    suite = _suite(crashed("t:x", "t:x: \x1b[31mIt <crashed> & burned.\x1b[0m\nTraceback\x00"))
    assert [suite.get(count) for count in COUNTS] == ["1", "0", "1", "0"]
    error = suite.find("testcase/error")
    assert error is not None
    assert error.get("message") == "t:x: [31mIt <crashed> & burned.[0m"
    assert error.text == "t:x: [31mIt <crashed> & burned.[0m\nTraceback"


def test_what_was_left_out_is_skipped() -> None:
    suite = _suite(skipped("t:x", "skip_verify=True"))
    assert [suite.get(count) for count in COUNTS] == ["1", "0", "0", "1"]
    assert suite.get("name") == "t:x"
