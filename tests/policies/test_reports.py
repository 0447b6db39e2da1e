"""SARIF, JUnit and positions: valid by the official schema, at the right line, inert, stable."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit.canonical import canonical
from policies.checked import Checked
from policies.junit import junit_text
from policies.positions import Position, locate, positions_of
from policies.render import explain
from policies.sarif import fingerprint, sarif_text, to_sarif
from policies.strict import StrictError, parse_yaml

SCHEMA = json.loads((Path(__file__).parent / "data" / "sarif-schema-2.1.0.json").read_text())
BASES = ("public", "personal", "special", "health", "claimed", "deploy", "serving")

JOB = b"""\
name: helpdesk
compute:
  provider: ovhcloud
  "region": BHS
purpose: {use_codes: [a, b], high_risk_areas: []}
datasets:
  - id: ds_01
    categories_declared: []
  - id: ds_02
odd/name~x: 1
"""


def read(text):
    return ET.fromstring(text.encode("utf-8"))  # noqa: S314 — our own writer's output


def validate(document):
    jsonschema.Draft4Validator(SCHEMA).validate(document)


@pytest.fixture
def check(judge, policy):
    """Check facts and return what a report is written from."""

    def checked(facts, *, file="facts.json", language="en", data=None, **more):
        decision = judge(facts)
        return Checked(
            file=file,
            verdict=decision.verdict,
            findings=[dict(one) for one in explain(decision, policy, language)],
            results=[one.to_document() for one in decision.results],
            approvals=[{"role": a.role, "count": a.count} for a in decision.approvals],
            evaluated_at="2026-11-30T12:00:00Z",
            digests={"record": decision.digest},
            language=language,
            positions=positions_of(data if data is not None else canonical(facts)),
            places=(("/derived", ""),),
            **more,
        )

    return checked


def hostile(text, **more):
    """Make a check whose every text is the given one."""
    names = ("rule", "version", "title", "pointer", "value", "message", "remediation", "severity")
    finding = dict.fromkeys(names, text) | {"effect": "deny", "outcome": "violated"}
    finding["law"] = [{"ref": text, "since": text, "note": text}]
    result = {"rule": text, "version": text, "effect": "deny", "outcome": "violated"}
    return Checked(file=text or "x", verdict="deny", findings=[finding], results=[result], **more)


# Positions


def test_every_member_and_element_has_its_place():
    found = positions_of(JOB)

    assert found[""] == found["/name"] == Position(1, 1)
    assert found["/compute"] == Position(2, 1)
    assert found["/compute/region"] == Position(4, 3)
    assert found["/purpose/use_codes"] == Position(5, 11)
    assert found["/purpose/use_codes/1"] == Position(5, 26)
    assert found["/datasets/1/id"] == Position(9, 5)
    assert found["/odd~1name~0x"] == Position(10, 1)


def test_json_is_read_as_well():
    assert positions_of(b'{"a":\n [{"b": 1}]}')["/a/0/b"] == Position(2, 4)


def test_a_column_counts_characters_not_bytes():
    assert positions_of("{é: {ü: 1, ß: 2}}".encode())["/é/ß"] == Position(1, 12)


@pytest.mark.parametrize(
    "data", [b"", b"\xff", b"a: [", b"{{}: 1}", b"[" * 200, b"*x", b"\x00", b"%YAML 9.9\n---\n"]
)
def test_what_cannot_be_read_has_no_positions(data):
    assert positions_of(data) == {} or "" in positions_of(data)


@given(st.binary(max_size=80))
def test_no_text_breaks_it(data):
    positions_of(data)


def test_billions_of_laughs_are_not_expanded():
    laughs = b"a: &a [x,x]\n" + b"".join(
        b"%c: &%c [*%c,*%c]\n" % (c, c, c - 1, c - 1) for c in range(98, 123)
    )
    with pytest.raises(StrictError):
        parse_yaml(laughs)
    assert len(positions_of(laughs)) < 200


def test_a_fact_is_found_at_its_nearest_member():
    found = positions_of(JOB)
    places = (("/derived/compute/country", "/compute/region"), ("/derived/datasets", "/datasets"))

    assert locate("/derived/compute/country", found, places) == (
        "/compute/region",
        Position(4, 3),
    )
    assert locate("/derived/datasets/1/licence", found, places) == ("/datasets/1", Position(9, 5))
    assert locate("/compute/flavor/x", found) == ("/compute", Position(2, 1))
    assert locate("/storage/0/region", found, places) is None
    assert locate("/computer", found) is None
    assert locate("", found) is None


# SARIF


@pytest.mark.parametrize("base_name", BASES)
@pytest.mark.parametrize("language", ["en", "fr"])
def test_every_log_is_valid_by_the_official_schema(check, base, base_name, language):
    facts = base(base_name)
    checks = [check(facts, language=language)]
    facts.pop("purpose")
    checks.append(check(facts, file="other.json", language=language))

    validate(to_sarif(checks))
    assert json.loads(sarif_text(checks)) == to_sarif(checks)


def test_broken_facts_an_empty_log_and_no_check_are_valid_too(check):
    validate(to_sarif([check({"format": "placet.facts/1", "stage": "train", "waiver": "all"})]))
    validate(to_sarif([check({})]))
    validate(to_sarif([]))


def test_the_official_schema_would_notice():
    log = to_sarif([])
    del log["runs"][0]["tool"]
    with pytest.raises(jsonschema.ValidationError):
        validate(log)


def test_a_result_points_at_the_line_and_names_law_and_way_out(check, base):
    facts = base("public")
    facts["compute"]["region"] = "BHS"
    text = json.dumps(facts, indent=1).encode()
    log = to_sarif([check(facts, file="jobs/a b.json", data=text)], version="1.2.3")

    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    found = next(one for one in run["results"] if one["ruleId"] == "residency.compute")
    assert (found["level"], found["kind"]) == ("error", "fail")
    assert rules[found["ruleIndex"]]["id"] == "residency.compute"
    (location,) = found["locations"]
    physical = location["physicalLocation"]
    assert physical["artifactLocation"] == {
        "uri": "jobs/a%20b.json",
        "uriBaseId": "%SRCROOT%",
    }
    line = text.decode().splitlines()[physical["region"]["startLine"] - 1]
    assert line.strip().startswith('"compute"')
    rule = rules[found["ruleIndex"]]
    assert rule["properties"]["law"]
    assert rule["properties"]["law"][0]["ref"] in rule["help"]["text"]
    assert run["tool"]["driver"]["version"] == "1.2.3"
    assert run["properties"]["checks"][0]["verdict"] == "deny"
    assert run["properties"]["checks"][0]["outcomes"]["residency.datasets"] == "pass"


def test_levels_say_what_a_finding_leads_to(check, base):
    facts = base("special")
    log = to_sarif([check(facts)])
    levels = {one["ruleId"]: one["level"] for one in log["runs"][0]["results"]}
    assert set(levels.values()) <= {"error", "warning", "note"}
    assert "warning" in levels.values()

    facts["purpose"] = None
    found = to_sarif([check(facts)])["runs"][0]["results"]
    unknown = [one for one in found if one["properties"]["outcome"] == "unknown"]
    assert {one["level"] for one in unknown if one["properties"]["effect"] != "warn"} == {"error"}


def test_a_waived_finding_is_a_suppressed_result():
    checked = hostile("budget.limit")
    waived = [{**checked.findings[0], "outcome": "waived"}]
    log = to_sarif([Checked("f", "allow_with_warnings", waived, [])])

    validate(log)
    (found,) = log["runs"][0]["results"]
    assert (found["level"], found["suppressions"]) == (
        "note",
        [{"kind": "external", "status": "accepted"}],
    )


def test_fingerprints_outlive_lines_and_values(check, base):
    facts = base("public")
    facts["compute"]["region"] = "BHS"
    one = check(facts)
    facts["compute"]["region"] = "SGP"
    other = check(facts, data=b"\n\n\n" + canonical(facts))

    def prints(checked):
        found = to_sarif([checked])["runs"][0]["results"]
        return {r["ruleId"]: r["partialFingerprints"]["placet/v1"] for r in found}

    assert prints(one) == prints(other)
    assert len(set(prints(one).values())) == len(prints(one))
    assert fingerprint("a", one.findings[0]) != fingerprint("b", one.findings[0])


NASTY = (
    "[click](https://evil.example) {0} \\ `x` <img src=x onerror=1>",
    "]]></failure><x/>&amp;<!--",
    "\x00\x1b[31m\x85￾\ud800\U0001f600",
    "/../../etc/passwd",
    "a\nb\tc\r\n",
)


@pytest.mark.parametrize("text", NASTY)
def test_hostile_text_is_inert_in_sarif(text):
    log = json.loads(sarif_text([hostile(text)]))

    validate(log)
    (run,) = log["runs"]
    message = run["results"][0]["message"]["text"]
    assert not re.search(r"(?<!\\)\[", message)
    assert not re.search(r"(?<!\{)\{(?!\{)", message)
    markdown = run["tool"]["driver"]["rules"][0]["help"]["markdown"]
    assert not re.search(r"(?<!\\)[<\[`]", markdown)


# JUnit


@pytest.mark.parametrize("base_name", BASES)
def test_junit_counts_what_it_holds(check, base, base_name):
    checked = check(base(base_name))
    root = read(junit_text([checked]))

    (suite,) = root.findall("testsuite")
    cases = suite.findall("testcase")
    assert suite.get("tests") == str(len(cases)) == str(len(checked.results))
    for name in ("failure", "error", "skipped"):
        plural = {"failure": "failures", "error": "errors", "skipped": "skipped"}[name]
        assert suite.get(plural) == str(len(suite.findall(f"testcase/{name}")))
    by_rule = {case.get("name"): case for case in cases}
    for result in checked.results:
        case = by_rule[result["rule"]]
        tags = [child.tag for child in case]
        if result["outcome"] == "pass":
            assert tags == []
        elif result["outcome"] == "not_applicable":
            assert tags == ["skipped"]
        elif result["effect"] == "warn":
            assert tags == ["system-out"]
        else:
            assert tags == ["failure"]
            assert case[0].get("type") in ("deny", "require_approval")
            assert case[0].get("message")


def test_junit_fails_for_a_broken_contract_and_for_no_rules(check, judge, policy):
    root = read(junit_text([check({})]))

    (suite,) = root
    assert int(suite.get("failures")) >= 1
    assert suite.find("testcase").get("name") == "facts.contract"


def test_junit_tells_errors_from_failures_and_waived_from_passed():
    checked = hostile("r")

    def tags(outcome):
        found = [{**checked.findings[0], "outcome": outcome}]
        result = [{**checked.results[0], "outcome": outcome}]
        (suite,) = read(junit_text([Checked("f", "deny", found, result)]))
        return [child.tag for child in suite[0]]

    assert tags("error") == ["error"]
    assert tags("violated") == tags("unknown") == ["failure"]
    assert tags("waived") == ["skipped"]


def test_junit_names_file_and_line(check, base):
    facts = base("public")
    facts["compute"]["region"] = "BHS"
    text = json.dumps(facts, indent=1).encode()
    root = read(junit_text([check(facts, file="a/job.json", data=text)]))
    case = root.find(".//testcase[@name='residency.compute']")
    assert case.get("file") == "a/job.json"
    assert '"compute"' in text.decode().splitlines()[int(case.get("line")) - 1]


@pytest.mark.parametrize("text", NASTY)
def test_hostile_text_is_inert_in_junit(text):
    body = junit_text([hostile(text)])

    root = read(body)
    assert [child.tag for child in root.iter()] == [
        "testsuites",
        "testsuite",
        "testcase",
        "failure",
    ]
    if text.isprintable():
        assert root.find(".//testcase").get("name") == text


@given(st.text(max_size=40))
def test_any_text_gives_readable_reports(text):
    json.loads(sarif_text([hostile(text)]))
    read(junit_text([hostile(text)]))
