"""Public reports of gates that opened by accident, each replayed against ours.

One test or more for each case; its docstring's first line names the case and what happened there.
`test_scenarios` holds a few more of the same list, `tests/service/test_scenarios_public` those that
need a service, and `tests/architecture/test_scenarios` sees that none of the list is missing.
"""

import copy
import random
import socket
import time

import pytest

from audit.canonical import canonical, digest
from policies.__main__ import main
from policies.cases import CASE_SITE, run_cases, uncovered
from policies.checked import Checked
from policies.decision import Decision, Finding
from policies.evaluator import EvaluationError, PythonEvaluator, RustEvaluator
from policies.facts import FactsError, parse_facts
from policies.gate import decide
from policies.junit import junit_text
from policies.lint import lint_rule
from policies.load import PACKS, REFERENCE, load_reference, policy_of, read_packs
from policies.pointers import drop, put
from policies.policy import Policy
from policies.reference import Reference, ReferenceDataError
from policies.render import explain
from policies.rule import Rule, RuleError
from policies.strict import StrictError, parse_yaml
from policies.waiver import Waiver, WaiverError

NOW = "2026-11-30T12:00:00Z"
ENGINES = (PythonEvaluator(), RustEvaluator())
BASES = ("public", "personal", "special", "health", "claimed", "deploy", "serving")


def finding(decision, rule):
    (found,) = [one for one in decision.results if one.rule == rule]
    return found


def outcome(decision, rule):
    return finding(decision, rule).outcome


def shipped_rule(name):
    (path,) = PACKS.glob(f"*/{name}.yaml")
    return parse_yaml(path.read_bytes())


def refused(document, match):
    with pytest.raises(RuleError, match=match):
        lint_rule(document, "pack/rule.yaml")


def only(policy, rule_id, **members):
    """Return a policy of one rule, changed, without obligations."""
    rule = policy.rule(rule_id)
    packs = tuple({**pack, "obligations": []} for pack in policy.packs)
    return Policy(packs, (Rule({**rule.document, **members}),))


def requiring(path, schema):
    """Nest a schema under a path of required members."""
    for name in reversed(path):
        schema = {"required": [name], "properties": {name: schema}}
    return schema


# Rules that do not say what they mean


def test_a_typo_in_a_path_is_a_lint_error_and_refuses_the_pack(tmp_path):
    """open-policy-agent/conftest#1164: a typo in a path means allow."""
    rule = shipped_rule("hds-certificate")
    rule["requires"] = requiring(["derived", "compute", "hds", "statuss"], {"const": "valid"})
    refused(rule, "no fact `statuss`")

    folder = tmp_path / "fr-hds"
    folder.mkdir()
    for path in (PACKS / "fr-hds").iterdir():
        text = path.read_text()
        if path.name == "hds-certificate.yaml":
            text = text.replace("status", "statuss")
        (folder / path.name).write_text(text)
    with pytest.raises(RuleError, match="hds-certificate"):
        read_packs([folder])


def test_a_misspelt_keyword_is_a_lint_error():
    """python-jsonschema/jsonschema#216: a misspelt keyword is silently ignored."""
    rule = shipped_rule("scope-gpus")
    for name in ("requried", "anyof", "Required", "minimun"):
        rule["requires"] = {"required": ["compute"], "properties": {"compute": {name: ["gpus"]}}}
        refused(rule, f"`{name}` is refused")


def test_a_regular_expression_is_a_lint_error():
    """conforma/policy PR#1781, octo-sts/app PR#1643: unanchored and half-anchored patterns."""
    rule = shipped_rule("residency-compute")
    for pattern in ("eu", "^eu-", "eu-.*$", "^(?:eu|EU)-"):
        rule["requires"] = requiring(["compute", "region"], {"pattern": pattern})
        refused(rule, "`pattern` is refused")


def test_a_remote_reference_is_a_lint_error_and_opens_no_socket(monkeypatch):
    """PrefectHQ/prefect PR#22252: `$ref` in a schema makes the server send a request."""

    def fail(*_):
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket.socket, "connect", fail)
    rule = shipped_rule("scope-gpus")
    for target in ("http://169.254.169.254/x", "file:///etc/passwd", "#/definitions/x"):
        rule["requires"] = {"$ref": target}
        refused(rule, r"`\$ref` is refused")
        for engine in ENGINES:
            with pytest.raises(EvaluationError):
                engine.compile({"$ref": target}).is_valid({})


def test_an_unknown_member_of_a_rule_is_refused():
    """sipyourdrink-ltd/bernstein#4913: a hand-made parser drops conditions it does not know."""
    for name in ("unless", "conditions", "When", "applies-when"):
        refused({**shipped_rule("scope-gpus"), name: []}, "rule breaks")


def test_a_country_code_stays_a_country_code(tmp_path):
    """OpenCageData/address-formatting PR#27, carmen-ruby/carmen#4: Norway becomes false."""
    assert parse_yaml(b"countries: [NO, FR, SE]") == {"countries": ["NO", "FR", "SE"]}
    for path in REFERENCE.glob("*.yaml"):
        (tmp_path / path.name).write_text(path.read_text())
    countries = tmp_path / "countries.yaml"
    countries.write_text(countries.read_text().replace("[AT,", "[true,", 1))
    with pytest.raises(ReferenceDataError, match="country_sets"):
        load_reference(tmp_path)


# Facts that are not there


@pytest.mark.parametrize("rule_family", ["residency.compute"])
def test_an_undefined_country_is_unknown_and_denies(judge, base, rule_family):
    """open-policy-agent/opa#1877, #7558: `not f(x)` with x missing is undefined."""
    facts = base("public")
    put(facts, "/compute/region", "GRA99")
    put(facts, "/compute/provider", "ovhcloud")
    decision = judge(facts)

    assert outcome(decision, rule_family) == "unknown"
    assert decision.verdict == "deny"


def test_no_data_sets_are_unknown_not_none_missing(judge, base):
    """fugue/regula#159: `count(missing) == 0` never fires."""
    facts = base("public")
    drop(facts, "/datasets")
    decision = judge(facts)

    assert outcome(decision, "tagging.present") == "unknown"
    assert decision.verdict == "deny"


def test_every_attribute_that_a_denying_rule_tests_denies_when_deleted(judge, base, policy):
    """teramoby/speedle-plus PR#36: a deny condition that cannot be evaluated is dropped."""
    facts = base("public")
    asked = judge(facts)
    for rule in policy.rules:
        if rule.effect == "warn" or outcome_of(asked, rule.id) != "pass":
            continue
        for path in rule.requires_needs:
            pointer = "/" + "/".join(map(str, path))
            if "*" in pointer or pointer.startswith("/derived"):
                continue
            fewer = copy.deepcopy(facts)
            drop(fewer, pointer)
            decision = judge(fewer)
            told = outcome_of(decision, rule.id)
            assert decision.verdict == "deny", pointer
            assert told == "unknown" or (told == "not_asked" and decision.contract_errors), pointer


def outcome_of(decision, rule):
    return next((one.outcome for one in decision.results if one.rule == rule), "not_asked")


@pytest.mark.parametrize("facts", [{}, None, [], {"format": "placet.facts/1"}], ids=repr)
def test_an_empty_question_is_denied_with_contract_errors(judge, facts):
    """jeremylongshore/claude-code-slack-channel PR#271: an empty input matches no deny."""
    decision = judge(facts)

    assert decision.verdict == "deny"
    assert decision.contract_errors
    assert explain(decision, Policy((), ()))[0]["rule"] == "facts.contract"


def test_absent_is_unknown_and_false_is_violated(judge, base):
    """cloud-custodian/cel-python#113: a missing field compares as false, `has()` is true."""
    absent, false = base("public"), base("public")
    drop(absent, "/base_model/licence_allows_fine_tuning")
    put(false, "/base_model/licence_allows_fine_tuning", value=False)

    assert outcome(judge(absent), "licence.base-model") == "unknown"
    assert outcome(judge(false), "licence.base-model") == "violated"


def test_all_of_no_data_sets_is_violated(judge, base):
    """hashicorp/terraform#34230, mondoohq/cnspec#248: `all` over nothing is true."""
    facts = base("public")
    facts["datasets"] = []
    decision = judge(facts)

    assert outcome(decision, "tagging.present") == "violated"
    assert decision.verdict == "deny"


@pytest.mark.parametrize("bad", [0, 1, 2])
def test_one_tagged_data_set_does_not_excuse_an_untagged_one(judge, base, bad):
    """fugue/regula PR#8: a rule passes if one block is valid."""
    facts = base("public")
    facts["datasets"] = [
        {**copy.deepcopy(facts["datasets"][0]), "id": f"ds_0{number}"} for number in range(3)
    ]
    facts["datasets"][bad]["categories_declared"] = []
    decision = judge(facts)

    assert decision.verdict == "deny"
    assert finding(decision, "tagging.present").at == (
        (f"/datasets/{bad}/categories_declared", "minItems"),
    )


@pytest.mark.parametrize("pointer", ["/compute/region", "/compute/provider"])
def test_null_is_unknown_and_the_message_names_the_fact(judge, base, policy, pointer):
    """Azure/azure-policy#576, #118: a null location passes."""
    facts = base("public")
    put(facts, pointer, None)
    decision = judge(facts)

    assert (decision.verdict, outcome(decision, "residency.compute")) == ("deny", "unknown")
    told = [one for one in explain(decision, policy) if one["rule"] == "residency.compute"]
    assert {"/derived/compute/country", "/derived/compute/in_eea"} == {
        one["pointer"] for one in told
    }
    assert all(one.get("fact", one["pointer"]) in one["message"] for one in told)


def test_an_end_that_is_no_date_is_no_end(tmp_path, reference):
    """python-jsonschema/jsonschema#395, #1346, #848: dates go unchecked without an extra."""
    row = {
        **reference.rows("certificates")[0],
        "status": "attested",
        "valid_from": "2026-01-01",
        "confidence": "primary",
    }
    for until in ("asdf", "2026-13-01x", "20271201", "2027-12-01T00:00:00Z"):
        document = {
            "format": "placet.reference/1",
            "site": None,
            "tables": {"certificates": [{**row, "valid_until": until}]},
        }
        with pytest.raises(ReferenceDataError, match="valid_until"):
            Reference.from_bytes(canonical(document))


# Values that are not what they look like


@pytest.mark.parametrize("engine", ENGINES, ids=lambda e: e.name)
def test_numbers_do_not_stand_in_for_booleans(judge, base, engine):
    """python-jsonschema/jsonschema#1208, #529: `[0]` is accepted for `[false]`."""
    for pointer, value in (
        ("/job/from_scratch", 0),
        ("/deploy/evaluation_present", 1),
        ("/base_model/licence_allows_fine_tuning", 1),
        ("/deploy/serves_public", [False]),
    ):
        facts = base("deploy" if pointer.startswith("/deploy") else "public")
        put(facts, pointer, value)
        decision = judge(facts, evaluator=engine)
        assert decision.verdict == "deny"
        assert decision.contract_errors
    for schema, value in (({"const": False}, 0), ({"enum": [[True]]}, [1]), ({"const": 1}, True)):
        assert not engine.compile(schema).is_valid(value)


def test_deciding_writes_nothing_into_the_facts(judge, base):
    """horejsek/python-fastjsonschema#194: validation writes defaults into the data."""
    for name in BASES:
        facts = base(name)
        before = digest(canonical(facts))
        decision = judge(facts)
        assert digest(canonical(facts)) == before == decision.facts_digest


def test_case_is_never_folded(judge, base, reference):
    """hashicorp/terraform-sentinel-policies PR#11: `iam:create*` against `iam:Create*`."""
    for pointer, value in (("/compute/provider", "Aws"), ("/datasets/0/provider", "AWS")):
        facts = base("public")
        put(facts, pointer, value)
        assert judge(facts).contract_errors
    facts = base("public")
    facts["compute"] |= {"provider": "ovhcloud", "region": "bhs"}
    assert judge(facts).verdict == "deny"
    row = {**next(r for r in reference.rows("providers") if r["parent"]), "parent": "us"}
    document = {"format": "placet.reference/1", "site": None, "tables": {"providers": [row]}}
    with pytest.raises(ReferenceDataError, match="providers/0/parent"):
        Reference.from_bytes(canonical(document))


@pytest.mark.parametrize(
    ("pointer", "value"),
    [
        ("/compute/provider", "S\u0441aleway"),
        ("/compute/provider", "scaleway\u200b"),
        ("/datasets/0/categories_declared", ["h\u0435alth"]),
        ("/datasets/0/categories_detected", ["\uff48ealth"]),
    ],
)
def test_look_alike_letters_are_a_contract_error(judge, base, pointer, value):
    """anthropics/claude-code#29489: confusables pass rules on strings."""
    facts = base("public")
    put(facts, pointer, value)
    decision = judge(facts)

    assert decision.verdict == "deny"
    assert decision.contract_errors[0][0].startswith(pointer)


def test_an_integer_that_would_lose_digits_is_refused(judge, base):
    """open-policy-agent/opa#3147: a big integer loses digits."""
    big = 2**53 + 1
    with pytest.raises(FactsError):
        parse_facts(b'{"cost": {"estimate_cents": %d}}' % big)
    with pytest.raises((StrictError, FactsError)):
        parse_facts(b"cost: {estimate_cents: %d}" % big, syntax="yaml")
    facts = base("public")
    put(facts, "/cost/estimate_cents", big)
    assert judge(facts).contract_errors == (("", "document"),)


# Engines that fail, and engines that differ


class Raising:
    """An engine whose checkers raise what real ones have raised."""

    name = "raising"

    def __init__(self, error, only_for):
        self._error = error
        self._only_for = only_for
        self._inner = PythonEvaluator()

    def compile(self, schema):
        checker = self._inner.compile(schema)
        if schema != self._only_for:
            return checker
        error = self._error

        class Checker:
            def is_valid(self, value):
                raise error

            def failures(self, value):
                raise error

        return Checker()


@pytest.mark.parametrize(
    "error", [EvaluationError("x"), RecursionError(), KeyError("x"), ZeroDivisionError()]
)
def test_a_rule_that_raises_denies_and_is_recorded(judge, base, policy, error):
    """cedar-policy/cedar#2428: a forbid that errors is dropped, so the permit wins."""
    if isinstance(error, RecursionError):
        error = EvaluationError("too deep")
    rule = policy.rule("residency.compute")
    decision = judge(base("public"), evaluator=Raising(error, dict(rule.requires)))

    assert decision.verdict == "deny"
    assert outcome(decision, "residency.compute") == "error"
    stored = Decision.from_record(decision.record)
    assert outcome(stored, "residency.compute") == "error"


def test_two_engines_give_the_same_bytes(judge, base):
    """microsoft/regorus#402, open-policy-agent/opa#5264: two engines, two answers."""
    chance = random.Random(7)
    for name in BASES:
        for _ in range(12):
            facts = base(name)
            members = [m for m in facts if isinstance(facts[m], dict) and facts[m]]
            inner = facts[chance.choice(members)]
            inner[chance.choice(sorted(inner))] = chance.choice([None, 0, "x", [], True, {}])
            one, other = (judge(facts, evaluator=engine) for engine in ENGINES)
            assert one.record == other.record


def test_a_decision_draws_nothing_from_the_world(judge, base, monkeypatch):
    """JSONbored/loopover#9135: an unrecorded random draw breaks replay."""
    before = judge(base("health")).record

    def fail(*_, **__):
        raise AssertionError("it asked the world")

    monkeypatch.setattr(time, "time", fail)
    monkeypatch.setattr(random, "random", fail)
    monkeypatch.setattr(socket, "socket", fail)
    monkeypatch.setenv("TZ", "Pacific/Apia")
    monkeypatch.setenv("PYTHONHASHSEED", "1")

    assert judge(base("health")).record == before


# Policies that match nothing


def test_a_policy_that_matches_nothing_denies(reference, base, policy, packs):
    """Hardhat-Enterprises/Policy-Deployment-Engine PR#714, conforma/cli PR#393: none is green."""
    question = {"evaluated_at": NOW, "subject": "job:job_01"}
    empty = decide(Policy((), ()), reference, base("public"), **question)
    assert empty.verdict == "deny"
    hds = policy_of([pack for pack in packs if pack.document["id"] == "fr-hds"])
    for candidate in (Policy(policy.packs, ()), Policy(policy.packs, hds.rules)):
        decision = decide(candidate, reference, base("public"), **question)
        assert decision.verdict == "deny"
        assert "missing" in decision.obligations.values()


def test_a_pack_whose_rules_have_no_tests_is_seen(packs, reference, tmp_path):
    """Hardhat-Enterprises/Policy-Deployment-Engine PR#714: zero tests executed is green."""
    (tmp_path / "own").mkdir()
    rule = shipped_rule("scope-gpus")
    rule["tests"] = []
    (tmp_path / "own" / "pack.yaml").write_text((PACKS / "fr-hds" / "pack.yaml").read_text())
    (tmp_path / "own" / "scope-gpus.yaml").write_bytes(canonical(rule))
    assert {rule for rule, _ in uncovered(read_packs([tmp_path]))} == {"scope.gpus"}
    assert main(["test", "--packs", str(tmp_path)]) == 1


def test_what_did_not_apply_is_reported_apart_from_what_passed(judge, base, policy):
    """kyverno/kyverno#2303: a rule that does not match counts as pass."""
    decision = judge(base("public"))
    apart = {one.rule: one.outcome for one in decision.results}
    assert set(apart.values()) >= {"pass", "not_applicable"}

    results = [one.to_document() for one in decision.results]
    report = junit_text([Checked("f", decision.verdict, explain(decision, policy), results)])

    assert report.count('<skipped message="not applicable"') == list(apart.values()).count(
        "not_applicable"
    )


def test_every_rule_is_seen_violated_with_the_shipped_reference_data(packs):
    """kubescape/cel-admission-library#116: a control errors only when it should match."""
    reference = load_reference(site=CASE_SITE)
    results = run_cases(packs, reference, ENGINES[0])
    violated = {one.rule for one in results if one.got == "violated"}

    assert violated == {rule.id for pack in packs for rule in pack.rules}
    assert not [one for one in results if one.got == "error"]


# Exceptions that reach too far


@pytest.mark.parametrize("subject", ["job:job-*", "job:*", "*", "job:job_[0-9]+", "job:"])
def test_a_waiver_for_a_pattern_of_subjects_is_refused(subject):
    """kyverno/kyverno#5617, #2813: a wildcard works in one operator and not in the next."""
    document = {
        "format": "placet.waiver/1",
        "id": "wvr_1",
        "rule": "budget.limit",
        "rule_version": "1.0.0",
        "subject": "job:job_01",
        "category": "waiver",
        "reason_digest": "sha256:" + "a" * 64,
        "requester": "prn_a",
        "approvers": ["prn_b", "prn_c"],
        "not_before": "2026-11-30T00:00:00Z",
        "expires_at": "2026-12-07T00:00:00Z",
        "revoked_at": None,
    }
    waiver = Waiver.from_document(document)
    assert waiver.to_document() == document
    if subject == "job:":
        assert not Waiver.from_document({**document, "subject": subject}).covers(
            policy_finding(), "job:job_01", NOW
        )
        return
    with pytest.raises(WaiverError, match="exact id"):
        Waiver.from_document({**document, "subject": subject})


def policy_finding():
    return Finding("budget.limit", "1.0.0", "deny", "violated")


@pytest.mark.parametrize(
    ("pointer", "value"),
    [
        ("/waiver", "wvr_1"),
        ("/waivers", []),
        ("/job/waiver", "wvr_1"),
        ("/placet:skip", "residency.compute"),
        ("/job/placet:skip", "all"),
        ("/derived", {"compute": {"in_eea": True}}),
    ],
)
def test_what_is_judged_cannot_excuse_itself(judge, base, pointer, value):
    """bridgecrewio/checkov#7307: the judged file disables its own check."""
    facts = base("public")
    parent = facts if pointer.count("/") == 1 else facts["job"]
    parent[pointer.rpartition("/")[2]] = value
    decision = judge(facts)

    assert decision.verdict == "deny"
    assert decision.contract_errors


# The same, from the study of other governance tools


def test_a_region_that_is_not_set_is_denied_not_defaulted(judge, base):
    """roboflow/inference#2474: the region is unset while enforcement is on."""
    facts = base("personal")
    for member in ("region", "provider", "service"):
        facts["compute"].pop(member)
    decision = judge(facts)

    assert (decision.verdict, outcome(decision, "residency.compute")) == ("deny", "unknown")


def test_a_product_that_no_certificate_names_is_denied(judge, base):
    """ovh/public-cloud-roadmap#995: the product's name is not on the certificate."""
    facts = base("health")
    facts["compute"] |= {"provider": "ovhcloud", "service": "ai-notebooks", "region": "GRA"}
    decision = judge(facts)

    assert decision.verdict == "deny"
    assert outcome(decision, "hds.certificate") in ("violated", "unknown")
    assert decision.document["derived"]["compute"].get("hds") in (None, {"status": "none"})


@pytest.mark.parametrize(
    ("pointer", "value"),
    [
        ("/datasets/0/digest", "sha256:zz"),
        ("/job/document_digest", "not a digest"),
        ("/compute/image", "registry/x:latest\n"),
        ("/datasets/0/data_subject_countries", ["France"]),
    ],
)
def test_formats_are_checked_by_ourselves(judge, base, pointer, value):
    """python-jsonschema/jsonschema#945, #848, #713: formats pass unless an extra is installed."""
    facts = base("public")
    put(facts, pointer, value)
    decision = judge(facts)

    assert decision.verdict == "deny"
    assert decision.contract_errors


def test_no_keyword_search_decides_what_a_purpose_is(judge, base):
    """microsoft/agent-governance-toolkit#756: social scoring passes for lack of a keyword."""
    facts = base("public")
    facts["purpose"]["description"] = "rate citizens on behaviour for government rewards"
    assert judge(facts).contract_errors
    facts = base("public")
    facts["purpose"]["prohibited_practices"] = None
    assert outcome(judge(facts), "use.prohibited") == "unknown"
    facts["purpose"]["prohibited_practices"] = ["art5.1.c"]
    decision = judge(facts)
    assert (decision.verdict, outcome(decision, "use.prohibited")) == ("deny", "violated")
