"""JUnit XML: each rule that was asked is a test case, for pipelines that show test reports.

    <testsuites><testsuite name="job.yaml" tests="2" failures="1" errors="0" skipped="1">
      <testcase classname="job.yaml" name="residency.compute" file="job.yaml" line="4">
        <failure type="deny" message="…">…</failure></testcase>
      <testcase classname="job.yaml" name="hds.certificate"><skipped message="…"/></testcase>
    </testsuite></testsuites>

A rule passes only when it passed: one that did not apply, or that a waiver covers, is skipped; what
denies or asks for an approval is a failure; a rule that could not be asked is an error; a warning
passes and says so in its output. The contract and obligations are cases of their own.

Source: the form that CI servers share (Ant's JUnit task); there is no standard.
"""

import re
from collections.abc import Sequence
from xml.etree import ElementTree as ET

from policies.checked import Checked, Found, weight

# What XML 1.0 cannot hold at all, not even escaped (section 2.2).
_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_text(checks: Sequence[Checked]) -> str:
    """Render checked documents as JUnit XML."""
    root = ET.Element("testsuites", {"name": "placet check"})
    for checked in checks:
        _suite(root, checked)
    ET.indent(root, " ")
    body: str = ET.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{body}\n'


def _suite(root: ET.Element, checked: Checked) -> None:
    suite = ET.SubElement(root, "testsuite", {"name": _clean(checked.file)})
    if checked.evaluated_at:
        suite.set("timestamp", checked.evaluated_at.removesuffix("Z"))
    by_rule: dict[str, list[Found]] = {}
    for one in checked.findings:
        by_rule.setdefault(str(one["rule"]), []).append(one)
    outcomes = {str(result["rule"]): str(result["outcome"]) for result in checked.results}
    for rule in dict.fromkeys([*outcomes, *by_rule]):
        _case(suite, checked, rule, outcomes.get(rule, "violated"), by_rule.get(rule, []))
    suite.set("tests", str(len(suite)))
    for count, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(count, str(len(suite.findall(f"testcase/{tag}"))))


def _case(
    suite: ET.Element, checked: Checked, rule: str, outcome: str, findings: Sequence[Found]
) -> None:
    file = _clean(checked.file)
    case = ET.SubElement(suite, "testcase", {"classname": file, "name": _clean(rule), "time": "0"})
    case.set("file", file)
    place = checked.where(findings[0]) if findings else None
    if place is not None:
        case.set("line", str(place[1].line))
    if outcome == "not_applicable":
        ET.SubElement(case, "skipped", {"message": "not applicable"})
    elif outcome == "waived":
        ET.SubElement(case, "skipped", {"message": "waived"}).text = _said(findings)
    elif outcome == "pass":
        return
    elif weight(findings[0]) == "warn" if findings else False:
        ET.SubElement(case, "system-out").text = _said(findings)
    else:
        tag = "error" if outcome == "error" else "failure"
        kind = weight(findings[0]) if findings else "deny"
        told = ET.SubElement(case, tag, {"type": kind})
        told.set("message", _clean(str(findings[0]["message"])) if findings else outcome)
        told.text = _said(findings)


def _said(findings: Sequence[Found]) -> str:
    lines: list[str] = []
    for one in findings:
        lines.append(f"{one['title']}: {one['message']}")
        if one["pointer"]:
            lines.append(f"saw {one['pointer']} = {one['value']}")
        lines += [f"law {law['ref']} (since {law['since']}): {law['note']}" for law in one["law"]]
        lines.append(f"change: {one['remediation']}")
    return _clean("\n".join(lines))


def _clean(text: str) -> str:
    """Replace what XML cannot hold by U+FFFD; the writer escapes the rest."""
    return _ILLEGAL.sub("�", text)
