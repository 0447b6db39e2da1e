"""`placet policy what-if`, `replay` and `explain`, against a service and against an export."""

import argparse
import json
import os
import shutil
import zipfile
from pathlib import Path

import pytest
from loopback import answering

from audit.canonical import canonical
from policies.bundle import build
from policies.derive import VERSION
from policies.load import PACKS
from service import cli
from service.commands import policy, policy_history
from service.commands.grammar import held_by

ABROAD = {
    "compute__provider": "ovhcloud",
    "compute__service": "ai-training",
    "compute__region": "BHS",
}


@pytest.fixture(scope="module")
def served(shared_world):
    world = shared_world
    jobs = {"fine": world.submit(), "abroad": world.submit(**ABROAD)}
    world.clock.advance(days=1)
    jobs["dear"] = world.submit(budget_cents=1)
    world.finished_job()
    with answering(world.app) as url:
        yield world, url, jobs


@pytest.fixture(scope="module")
def export(served, tmp_path_factory):
    """Export the log; return the zip file."""
    world, _, _ = served
    world.worker.publish()
    row = world.post("/v1/exports", "vera", {"recipient": "auditor"})
    path = tmp_path_factory.mktemp("export") / "evidence.zip"
    path.write_bytes(world.ask("GET", row["bundle"], "vera").content)
    return path


@pytest.fixture
def placet(served, capfd, monkeypatch):
    """Run `placet policy …` as somebody, against the served world."""
    world, url, _ = served
    monkeypatch.setattr(os, "umask", lambda mask: mask)
    monkeypatch.setenv("PLACET_URL", url)

    def run(*words, who="vera"):
        monkeypatch.setenv("PLACET_TOKEN", world.tokens[who])
        capfd.readouterr()
        try:
            status = cli.main(["policy", *map(str, words)])
        except SystemExit as ended:
            status = ended.code
        said = capfd.readouterr()
        return status, said.out, said.err

    return run


@pytest.fixture
def packs(tmp_path):
    """Copy the shipped packs, to be changed."""
    return Path(shutil.copytree(PACKS, tmp_path / "packs"))


def drop_rule(packs, name):
    (found,) = packs.glob(f"*/{name}.yaml")
    found.unlink()


def sources(export):
    return [("--since", "2026-11-01"), ("--history", export)]


@pytest.mark.parametrize("words", ["what-if", "replay", "explain"])
def test_each_command_explains_itself_with_examples(placet, words):
    status, out, _ = placet(words, "--help")

    assert status == 0
    assert "--json" in out
    assert f"examples:\n  placet policy {words}" in out


def test_commands_are_added_only_below_a_command_that_holds_some():
    with pytest.raises(LookupError):
        held_by(argparse.ArgumentParser())
    parser = argparse.ArgumentParser()
    policy.add_commands(parser.add_subparsers())
    assert set(held_by(parser).choices) == {"what-if", "replay", "explain"}


# What-if


def test_the_packs_in_force_change_nothing(placet, export):
    for source in sources(export):
        status, out, _ = placet("what-if", PACKS, *source, "--json")
        found = json.loads(out)
        assert status == 0
        assert found["decisions"] >= 4
        assert found["changed"] == 0


def test_a_dropped_rule_lets_through_and_says_whose(placet, export, packs, served):
    _, _, jobs = served
    assert jobs["dear"]["state"] == "denied"
    drop_rule(packs, "budget-limit")

    said = []
    for source in sources(export):
        status, out, _ = placet("what-if", packs, *source, "--json")
        found = json.loads(out)
        assert status == 1
        assert (found["from_deny"], found["to_deny"]) == (1, 0)
        (one,) = found["list"]
        assert one["subject"] == f"job:{jobs['dear']['id']}"
        assert one["team"] == "compliance"
        assert [rule["rule"] for rule in one["rules"]] == ["budget.limit"]
        said.append({k: v for k, v in found.items() if k != "per_second"})
    assert said[0] == said[1]


@pytest.mark.parametrize(
    ("fail_on", "status"), [("any", 1), ("milder", 1), ("stricter", 0), ("never", 0)]
)
def test_what_counts_as_a_failure_can_be_chosen(placet, packs, fail_on, status, export):
    drop_rule(packs, "budget-limit")

    assert placet("what-if", packs, "--history", export, "--fail-on", fail_on)[0] == status


def test_text_names_rule_team_and_subject(placet, packs, export, served):
    drop_rule(packs, "budget-limit")
    status, out, _ = placet("what-if", packs, "--history", export)

    assert status == 1
    assert "1 come out otherwise: 0 stricter, 1 milder" in out
    for word in ("budget.limit", "violated", "not_asked", "compliance", served[2]["dear"]["id"]):
        assert word in out


def test_history_can_start_on_a_day(placet, export):
    for source in (("--since", "2026-12-01"), ("--since", "2026-12-01", "--history", export)):
        assert json.loads(placet("what-if", PACKS, *source, "--json")[1])["decisions"] == 2
    assert placet("what-if", PACKS, "--since", "yesterday")[0] == 2


def test_a_submitter_sees_what_changes_for_their_teams(placet, packs):
    drop_rule(packs, "budget-limit")

    assert placet("what-if", packs, who="ada")[0] == 1
    status, out, _ = placet("what-if", packs, who="eve")
    assert (status, out.splitlines()[0][:11]) == (0, "0 decisions")


def test_a_candidate_that_does_not_lint_is_refused_whole(placet, packs, export, tmp_path):
    (packs / "eu-baseline" / "scope-gpus.yaml").write_text("format: placet.rule/1\n")

    for candidate in (packs, tmp_path / "nowhere", export):
        status, _, err = placet("what-if", candidate, "--history", export)
        assert status == 2
        assert err.count("\n") == 1


def test_a_policy_document_is_a_candidate_too(placet, served, export, tmp_path):
    world, _, jobs = served
    path = tmp_path / "policy.json"
    decision = jobs["fine"]["decision"]["id"]
    path.write_bytes(world.ask("GET", f"/v1/decisions/{decision}/policy", "vera").content)

    assert placet("what-if", path, "--history", export)[0] == 0


def test_a_bundle_is_a_candidate_whoever_signed_it(placet, packs, export, tmp_path):
    drop_rule(packs, "budget-limit")
    made = build(packs, number=7, created="2026-11-30T12:00:00Z", effective="2026-12-01")
    path = tmp_path / "bundle.json"
    path.write_bytes(made.to_bytes())
    status, out, _ = placet("what-if", path, "--history", export, "--json")
    assert (status, json.loads(out)["policy"]) == (1, made.manifest.policy)

    other = json.loads(made.to_bytes())
    other["manifest"]["policy"] = "sha256:" + "0" * 64
    path.write_bytes(canonical(other))
    assert placet("what-if", path, "--history", export)[0] == 2


# Replay


def test_every_decision_comes_out_again(placet, export):
    for source in (("--all",), ("--history", export)):
        status, out, _ = placet("replay", *source, "--json")
        found = json.loads(out)
        assert status == 0
        assert found["identical"] == found["decisions"] >= 4
        assert (found["differing"], found["not_checked"], found["list"]) == (0, 0, [])
        assert found["per_second"] > 0
    status, out, _ = placet("replay", "--all")
    assert "0 differing, 0 not checked" in out


def test_no_decision_at_all_is_not_green(placet):
    assert placet("replay", "--all", "--since", "2031-01-01")[0] == 4
    assert placet("replay", "--all", who="eve")[0] == 4


def test_what_differs_is_named(placet, export, monkeypatch):
    real = policy_history.replay_record

    def other(record, rules, reference):
        return real(record.replace(b'"verdict":"deny"', b'"verdict":"allow"'), rules, reference)

    monkeypatch.setattr(policy_history, "replay_record", other)
    status, out, _ = placet("replay", "--history", export)

    assert status == 1
    assert "2 differing" in out
    assert "differing: verdict" in out


def test_a_record_of_another_derivation_is_not_checked_and_not_green(placet, export, monkeypatch):
    real, ours = policy_history.replay_record, f'"derivation":"{VERSION}"'.encode()

    def older(record, rules, reference):
        assert ours in record
        return real(record.replace(ours, b'"derivation":"placet.derive/0"'), rules, reference)

    monkeypatch.setattr(policy_history, "replay_record", older)
    status, out, _ = placet("replay", "--history", export, "--json")

    found = json.loads(out)
    assert status == 4
    assert (found["identical"], found["differing"]) == (0, 0)
    assert found["not_checked"] == found["decisions"] > 0
    assert "level 2" in found["list"][0]["detail"]


@pytest.mark.parametrize("words", [(), ("--history", "nowhere.zip"), ("--all", "--since", "x")])
def test_wrong_usage_of_replay_ends_with_2(placet, words):
    assert placet("replay", *words)[0] == 2


def test_an_export_that_lacks_or_bends_a_document_is_not_replayed(placet, export, tmp_path):
    bent = tmp_path / "bent.zip"
    bent.write_bytes(export.read_bytes()[:-100])
    assert placet("replay", "--history", bent)[0] == 2
    with zipfile.ZipFile(bent, "w") as archive:
        archive.writestr("manifest.json", "{}")
    status, _, err = placet("replay", "--history", bent)
    assert status == 2
    assert err.count("\n") == 1


# Explain


@pytest.mark.parametrize("language", ["en", "fr"])
def test_a_job_is_explained_in_the_language_that_was_asked_for(placet, served, language):
    world, _, jobs = served
    status, out, _ = placet("explain", jobs["abroad"]["id"], "--language", language)
    dear = placet("explain", jobs["dear"]["id"], "--language", language)[1]
    assert "\\" not in dear

    rule = world.in_force.policy.rule("residency.compute")
    assert status == 0
    assert rule.document["remediation"][language] in " ".join(out.split())
    assert all(char.isprintable() or char in "\n\u00a0\u202f" for char in out)
    assert "\\" not in out
    same = placet("explain", jobs["abroad"]["decision"]["id"], "--language", language)
    assert same[1] == out


def test_an_explanation_is_for_machines_too(placet, served):
    status, out, _ = placet("explain", served[2]["abroad"]["id"], "--json")

    found = json.loads(out)
    assert (status, found["verdict"]) == (0, "deny")
    assert "residency.compute" in {one["rule"] for one in found["findings"]}


def test_what_one_may_not_see_is_not_explained(placet, served):
    assert placet("explain", served[2]["fine"]["id"], who="eve")[0] == 2
    assert placet("explain", "ds_1")[0] == 2
    assert placet("explain", "dec_nothing")[0] == 2
