"""The five cases that every demonstration shows."""

import pytest

from policies.rule import Approval

CANADA = {"provider": "ovhcloud", "service": "ai-training", "region": "BHS"}


def outcomes(decision):
    return {f.rule: f.outcome for f in decision.findings}


@pytest.mark.parametrize("tag", ["public", "synthetic"])
def test_public_data_on_the_own_site_waits_for_one_officer(judge, base, tag):
    facts = base("public")
    facts["datasets"][0]["categories_declared"] = [tag]

    decision = judge(facts)

    assert decision.verdict == "require_approval"
    assert decision.approvals == (Approval("officer", 1),)
    assert outcomes(decision) == {"approval.officer": "violated"}


def test_compute_in_canada_is_denied(judge, base):
    facts = base("public")
    facts["compute"] |= CANADA

    decision = judge(facts)

    assert decision.verdict == "deny"
    assert outcomes(decision)["residency.compute"] == "violated"
    assert decision.approvals == ()


def test_data_in_canada_is_denied(judge, base):
    facts = base("public")
    facts["datasets"][0] |= {**CANADA, "service": "object-storage"}

    decision = judge(facts)

    assert decision.verdict == "deny"
    assert outcomes(decision)["residency.datasets"] == "violated"


def test_an_unknown_region_is_denied(judge, base):
    facts = base("public")
    facts["compute"] |= {**CANADA, "region": "GRA99"}

    decision = judge(facts)

    assert decision.verdict == "deny"
    assert outcomes(decision)["residency.compute"] == "unknown"


def test_an_own_site_without_a_declared_country_is_denied(judge, base):
    from policies.load import load_reference

    decision = judge(base("public"), reference=load_reference())

    assert decision.verdict == "deny"
    assert outcomes(decision)["residency.compute"] == "unknown"


def test_an_own_site_outside_the_eea_is_denied(judge, base):
    from policies.load import load_reference

    site = {"country": "CH", "declared_by": "prn_1", "checked_on": "2026-11-30"}

    decision = judge(base("public"), reference=load_reference(site=site))

    assert outcomes(decision)["residency.compute"] == "violated"


def test_untagged_data_is_denied(judge, base):
    facts = base("public")
    facts["datasets"][0]["categories_declared"] = []

    decision = judge(facts)

    assert decision.verdict == "deny"
    assert outcomes(decision)["tagging.present"] == "violated"


@pytest.mark.parametrize("name", ["claimed", "health"])
def test_health_data_on_a_service_without_a_certificate_is_denied(judge, base, name):
    decision = judge(base(name))

    assert decision.verdict == "deny"
    assert outcomes(decision)["hds.certificate"] == "violated"


def test_health_data_on_the_own_site_is_denied_without_certificate_or_exemption(judge, base):
    facts = base("public")
    facts["datasets"][0] |= {
        "categories_declared": ["health"],
        "data_subject_countries": ["FR"],
        "legal_basis": "art6.1.e",
        "art9_basis": "art9.2.h",
        "dpia_reference": "DPIA-1",
    }

    decision = judge(facts)

    assert decision.verdict == "deny"
    assert outcomes(decision)["hds.certificate"] == "violated"


def test_a_self_hosting_care_establishment_waits_for_two_officers(judge, base):
    from policies.cases import CASE_SITE
    from policies.load import load_reference

    facts = base("public")
    facts["datasets"][0] |= {
        "categories_declared": ["health"],
        "data_subject_countries": ["FR"],
        "legal_basis": "art6.1.e",
        "art9_basis": "art9.2.h",
        "dpia_reference": "DPIA-1",
    }
    reference = load_reference(site={**CASE_SITE, "hds_self_hosted": True})

    decision = judge(facts, reference=reference)

    assert decision.verdict == "require_approval"
    assert decision.approvals == (Approval("officer", 2),)
    assert outcomes(decision)["hds.self-hosting"] == "violated"


def test_a_deployment_on_the_own_site_waits_for_one_officer(judge, base):
    decision = judge(base("deploy"), subject="deployment:dep_01")

    assert decision.verdict == "require_approval"
    assert decision.approvals == (Approval("officer", 1),)


def test_a_notebook_on_public_data_needs_nobody(judge, base):
    facts = base("public")
    facts["job"]["kind"] = "notebook"

    assert judge(facts).verdict == "allow"
