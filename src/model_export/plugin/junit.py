"""JUnit XML for what `test` says of an artifact."""

from __future__ import annotations

import re
from typing import Tuple
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

_CASE = "verification"
# What XML 1.0 can't hold, escapes of terminal colours among it.
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def named_after(address: str, report: bytes) -> bytes:
    """The verifier's report under the address of the target, which the verifier isn't told."""
    root = ElementTree.fromstring(report)
    for suite in root.iter("testsuite"):
        suite.set("name", address)
    for case in root.iter("testcase"):
        case.set("classname", address)
    return _bytes(root)


def crashed(address: str, message: str) -> bytes:
    """A report of one test that ended in an error before it could say anything."""
    root, case = _one_case(address, errors=1)
    text = _NO_XML.sub("", message)
    error = SubElement(case, "error", message=text.split("\n", 1)[0])
    error.text = text
    return _bytes(root)


def skipped(address: str, reason: str) -> bytes:
    """A report of one test that was left out."""
    root, case = _one_case(address, skipped=1)
    SubElement(case, "skipped", message=reason)
    return _bytes(root)


def _one_case(address: str, **counts: int) -> Tuple[Element, Element]:
    root = Element("testsuites")
    totals = {"tests": 1, "failures": 0, "errors": 0, "skipped": 0, **counts}
    suite = SubElement(root, "testsuite", name=address)
    for name, count in totals.items():
        suite.set(name, str(count))
    return root, SubElement(suite, "testcase", name=_CASE, classname=address)


def _bytes(root: Element) -> bytes:
    return bytes(ElementTree.tostring(root, encoding="utf-8", xml_declaration=True))
