"""An operator who signs with the log's real key still cannot tell a story that did not happen.

Each lie is told in an honest log: one thing is changed, every digest that follows from it too, and
the whole is signed again with the key that the auditor trusts.
"""

import base64
import copy
import io
import json
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from sqlmodel import select
from world import open_world

from audit.bundle import open_bundle
from audit.canonical import canonical, digest
from audit.event import from_bytes, to_bytes
from audit.keys import Ed25519Signer
from audit.note import Checkpoint, sign_checkpoint
from audit.tiles import TileReader, build_tiles
from audit.writing import write_bundle
from policies.gate import decide
from policies.policy import Policy
from policies.reference import Reference
from policies.waiver import Waiver
from service.cli import main
from service.ids import Prefix, new_id
from service.log_tables import Document

ORIGIN = "placet.localhost/log"
KEY = Ed25519Signer.from_seed(ORIGIN, b"\x01" * 32)


def other(prefix):
    """An id that nothing has; the same every time, since it stands in a test's name."""
    return f"{prefix}_{'0' * 26}"


def part(value):
    return base64.urlsafe_b64encode(canonical(value)).rstrip(b"=")


def token(claims):
    """A permit with these claims; nobody without the issuer's key can check its signature."""
    return b".".join([part({"alg": "EdDSA"}), part(claims), b"c2lnbmF0dXJl"])


def claims_in(permit):
    body = permit.split(b".")[1]
    return json.loads(base64.urlsafe_b64decode(body + b"=" * (-len(body) % 4)))


class Operator:
    """Holds the log's key, the entries and the documents, and changes what they like."""

    def __init__(self, entries, documents):
        self.entries = entries
        self.documents = documents

    def keep(self, body):
        self.documents[digest(body)] = body
        return digest(body)

    def find(self, action, stage=None):
        """The first entry of a kind (and stage)."""
        return next(
            entry
            for entry in self.entries
            if entry["action"] == action and stage in (None, entry["data"].get("stage"))
        )

    def insert(self, like, *, before=None, at=None, **changes):
        """Write a new entry like another one, before the first of a kind, at a place or the end."""
        entry = copy.deepcopy(like) | {"id": new_id(Prefix.ENTRY)} | changes
        index = len(self.entries) if at is None else at
        if before is not None:
            index = self.entries.index(self.find(before))
        self.entries.insert(index, entry)
        return entry

    def permit(self, **changes):
        """Change the claims of the run's permit."""
        entry = self.find("run.dispatching")
        claims = claims_in(self.documents[entry["data"]["permit_digest"]])
        entry["data"]["permit_digest"] = self.keep(token(claims | changes))

    def decide_again(self, entry, change=None, *, follow=True, **options):
        """Let the real gate decide on changed facts, and make what follows point to the result."""
        data, old = entry["data"], entry["data"]["record"]
        record = json.loads(self.documents[old])
        facts = record["facts"]
        if change is not None:
            change(facts)
        decision = decide(
            Policy.from_bytes(self.documents[data["policy"]]),
            Reference.from_bytes(self.documents[data["reference"]]),
            facts,
            **{"evaluated_at": record["evaluated_at"], "subject": record["subject"], **options},
        )
        new = self.keep(decision.record)
        data["facts"], data["verdict"] = self.keep(canonical(facts)), decision.verdict
        data["approvals"] = [{"role": a.role, "count": a.count} for a in decision.approvals]
        data["record"] = new
        if not follow:
            return decision
        for each in self.entries:
            if each["data"].get("record") == old:
                each["data"]["record"] = new
        if data["stage"] == "train":
            self.permit(decision=new)
        return decision

    def bundle(self, path):
        """Sign the log and every document that it names."""
        bodies = [to_bytes(from_bytes(canonical(entry))) for entry in self.entries]
        tiles = dict(build_tiles(0, bodies, lambda _: b""))
        head = TileReader(len(bodies), tiles.__getitem__).root()
        note = sign_checkpoint(Checkpoint(ORIGIN, len(bodies), head), [KEY], timestamp=1)
        named = b"".join(bodies)
        out = io.BytesIO()
        write_bundle(
            out,
            checkpoint=note,
            tiles=tiles.__getitem__,
            objects={key: body for key, body in self.documents.items() if key.encode() in named},
            signer=KEY,
            verifier=b"# placet_verify.py\n",
            manifest_fields={},
        )
        path.write_bytes(out.getvalue())


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """The entries and the documents of a log in which a model was trained and deployed."""
    folder = tmp_path_factory.mktemp("world")
    world = open_world(folder, f"sqlite:///{folder / 'placet.db'}")
    world.active_deployment()
    with world.wired.transactions.read() as session:
        documents = {row.digest: row.body for row in session.exec(select(Document))}
    entries = [json.loads(to_bytes(entry)) for entry in world.entries()]
    world.wired.database.dispose()
    return entries, documents


@pytest.fixture
def operator(told):
    entries, documents = told
    return Operator(copy.deepcopy(entries), dict(documents))


@pytest.fixture
def verified(operator, tmp_path: Path, capsys):
    """Return a function that verifies what the operator tells: exit status and report."""

    def run():
        path = tmp_path / "bundle.zip"
        operator.bundle(path)
        status = main(["--json", "verify", str(path), "--vkey", KEY.vkey, "--replay"])
        report = json.loads(capsys.readouterr().out)
        report["L8"] = next(each for each in report["levels"] if each["id"] == "L8")
        return status, report

    return run


@pytest.fixture
def broken(verified):
    """Return a function that gives the rules of level L6 that the told story breaks."""

    def run():
        status, report = verified()
        assert status == 1, report
        return {each["rule"] for each in report["violations"]}

    return run


@pytest.fixture
def replayed(verified):
    """Return a function that gives why level L8, and nothing before it, fails."""

    def run():
        status, report = verified()
        assert report["violations"] == []
        assert (status, report["L8"]["outcome"]) == (1, "fail"), report
        return report["L8"]["detail"]

    return run


def test_the_honest_story_verifies(verified):
    status, report = verified()

    assert (status, report["verdict"], report["L8"]["outcome"]) == (0, "VERIFIED", "pass"), report


def test_the_same_decision_made_again_verifies(operator, verified):
    for stage in ("train", "deploy"):
        operator.decide_again(operator.find("gate.decided", stage))

    assert verified()[0] == 0


class TestStories:
    """Level L6: what cannot have happened, whatever the documents say."""

    def test_a_run_of_other_bytes(self, operator, broken):
        operator.find("run.dispatching")["data"] |= {
            "spec": operator.keep(b'{"spec":"what nobody approved"}'),
            "dataset": new_id(Prefix.DATASET),
        }
        assert broken() == {"dispatch-binds-bytes", "dispatch-binds-permit", "finish-binds-report"}

    def test_two_runs_on_one_permit(self, operator, broken):
        again = operator.insert(operator.find("run.dispatching"))
        again["data"]["run"] = new_id(Prefix.RUN)
        assert broken() >= {"permit-once", "dispatch-uses-decision-once"}

    def test_a_cancelled_job_that_ran(self, operator, broken):
        job = operator.find("job.submitted")
        operator.insert(job, before="run.dispatching", action="job.cancelled", data={})
        assert broken() == {"dispatch-after-cancel"}

    def test_an_approval_by_a_model(self, operator, broken):
        operator.find("approval.given")["actor"]["kind"] = "model"
        assert broken() >= {"approver-is-human"}

    def test_an_approval_by_a_ghost(self, operator, broken):
        operator.find("approval.given")["actor"]["ref"] = new_id(Prefix.PRINCIPAL)
        assert broken() >= {"approver-has-role"}

    def test_another_model_than_the_requested(self, operator, broken):
        operator.find("deployment.activated")["data"] |= {
            "model_version": new_id(Prefix.MODEL_VERSION),
            "artefacts": operator.keep(b"bytes that nobody trained here"),
        }
        assert broken() == {"activation-binds-model", "activation-binds-artefacts"}

    def test_a_model_that_nobody_trained(self, operator, broken):
        forged = operator.keep(b"bytes that nobody trained here")
        for action in ("model_version.registered", "deployment.activated"):
            operator.find(action)["data"]["artefacts"] = forged
        assert broken() == {"model-binds-artefacts", "request-binds-document"}


class TestTimes:
    """Level L6: a decision is made when the log says, and used while it is valid."""

    def moved(self, text, **by):
        return (datetime.fromisoformat(text) + timedelta(**by)).strftime("%Y-%m-%dT%H:%M:%S.000Z")

    @pytest.mark.parametrize("stage", ["train", "deploy"])
    @pytest.mark.parametrize("at", ["2026-11-30T11:49:59Z", "2026-11-30T12:10:01Z"])
    def test_a_decision_as_of_another_time(self, operator, broken, stage, at):
        operator.decide_again(operator.find("gate.decided", stage), evaluated_at=at)
        assert broken() == {"decision-binds-record"}

    @pytest.mark.parametrize(
        ("action", "move"),
        [("run.dispatching", "dispatch"), ("deployment.activated", "activation")],
    )
    @pytest.mark.parametrize("days", [7, -1])
    def test_a_decision_used_outside_its_time(self, operator, broken, action, move, days):
        entry = operator.find(action)
        entry["at"] = self.moved(entry["at"], days=days)
        assert broken() - {"dispatch-binds-permit"} == {f"{move}-in-time"}


class TestFacts:
    """Level L8: a decision is about the things that the log names, and about nothing else."""

    OTHER = "sha256:" + "0" * 64

    @pytest.mark.parametrize(
        ("path", "value"),
        [
            ("job.id", other("job")),
            ("job.team", "another-team"),
            ("job.document_digest", OTHER),
            ("job.spec_digest", OTHER),
            ("datasets.id", other("ds")),
            ("datasets.digest", OTHER),
            ("datasets.categories_declared", ["public"]),
            ("base_model.id", other("bm")),
            ("base_model.digest", OTHER),
            ("base_model.licence", "MIT"),
        ],
    )
    @pytest.mark.parametrize("stage", ["train", "deploy"])
    def test_of_another_thing(self, operator, replayed, stage, path, value):
        section, _, member = path.partition(".")

        def change(facts):
            place = facts[section][0] if section == "datasets" else facts[section]
            place[member] = value

        operator.decide_again(operator.find("gate.decided", stage), change)
        named = section if section in {"datasets", "base_model"} else path
        assert replayed().endswith(f"the facts are not those of the log: {named}")

    @pytest.mark.parametrize(
        ("member", "value"),
        [("model_version", other("mv")), ("artefacts_digest", OTHER)],
    )
    def test_of_another_deployment(self, operator, replayed, member, value):
        decided = operator.find("gate.decided", "deploy")
        operator.decide_again(decided, lambda facts: facts["deploy"].update({member: value}))
        assert replayed().endswith(f"the facts are not those of the log: deploy.{member}")

    def test_of_two_data_sets_for_one(self, operator, replayed):
        decided = operator.find("gate.decided", "train")
        operator.decide_again(decided, lambda facts: facts["datasets"].append(facts["datasets"][0]))
        assert replayed().endswith("the facts are not those of the log: datasets")

    def test_an_invented_waiver(self, operator, broken):
        decided = operator.find("gate.decided", "train")
        subject = decided["resource"].partition("@")[0]
        policy = Policy.from_bytes(operator.documents[decided["data"]["policy"]])
        waiver = Waiver(
            id="wvr_1",
            rule="budget.limit",
            rule_version=policy.rule("budget.limit").version,
            subject=subject,
            category="waiver",
            reason_digest=self.OTHER,
            requester="prn_ghost1",
            approvers=("prn_ghost2", "prn_ghost3"),
            not_before="2026-11-01T00:00:00Z",
            expires_at="2027-01-01T00:00:00Z",
        )
        decision = operator.decide_again(
            decided, lambda facts: facts["cost"].update(budget_cents=0), waivers=[waiver]
        )
        assert decision.verdict != "deny"
        assert broken() == {"waived-needs-request", "waived-needs-waiver"}

    def waived_as(self, operator, role):
        """Tell that two people with this role approved a waiver before the job was decided."""
        decided, created = (
            operator.find("gate.decided", "train"),
            operator.find("principal.created"),
        )
        subject = decided["resource"].partition("@")[0]
        policy = Policy.from_bytes(operator.documents[decided["data"]["policy"]])
        people = [new_id(Prefix.PRINCIPAL) for _ in range(3)]
        terms = {
            "rule": "budget.limit",
            "rule_version": policy.rule("budget.limit").version,
            "category": "waiver",
            "not_before": "2026-11-29T00:00:00Z",
            "expires_at": "2026-12-20T00:00:00Z",
        }
        first = operator.insert(decided, before="gate.decided")
        operator.decide_again(
            first, lambda facts: facts["cost"].update(budget_cents=0), follow=False
        )
        name, steps = new_id(Prefix.WAIVER), []
        for person in people:
            data = {**created["data"], "roles": [role]}
            steps.append({"like": created, "resource": f"principal:{person}", "data": data})
        said = {"subject": subject, "requester": people[0], "record": first["data"]["record"]}
        said |= {"format": "placet.waiver-request/1", "waiver": name, **terms}
        data = {"waiver": name, **terms, "digest": operator.keep(canonical(said))}
        asked = {"action": "waiver.requested", "data": data, "resource": decided["resource"]}
        asked["sealed"] = {"reason": base64.b64encode(b"\x07" * 32).decode()}
        steps.append({"like": operator.find("approval.given"), **asked, "by": people[0]})
        for person in people[1:]:
            given = {"action": "waiver.approved", "data": {"waiver": name, "role": role}}
            given |= {"resource": decided["resource"], "sealed": {}, "by": person}
            steps.append({"like": operator.find("approval.given"), **given})
        for step in steps:
            like, by = step.pop("like"), step.pop("by", None)
            if by is not None:
                step["actor"] = {**like["actor"], "kind": "human", "ref": by}
            operator.insert(like, at=operator.entries.index(decided), **step)
        waiver = Waiver(
            id=name,
            subject=subject,
            reason_digest=f"sha256:{(bytes([7]) * 32).hex()}",
            requester=people[0],
            approvers=tuple(people[1:]),
            **terms,
        )
        return operator.decide_again(
            decided, lambda facts: facts["cost"].update(budget_cents=0), waivers=[waiver]
        )

    def test_a_waiver_approved_in_a_role_that_its_rule_does_not_name(self, operator, broken):
        assert self.waived_as(operator, "submitter").verdict != "deny"
        assert "waiver-approver-may-sign" in broken()

    def test_the_same_waiver_approved_by_officers_is_no_lie(self, operator, verified):
        assert self.waived_as(operator, "officer").verdict != "deny"
        _, report = verified()
        assert report["L8"]["outcome"] == "pass", report

    def another(self, operator, member):
        """Keep the same content of a decision's document under another digest."""
        data = operator.find("gate.decided", "train")["data"]
        value = json.loads(operator.documents[data[member]])
        return data, operator.keep(json.dumps(value, indent=1).encode())

    def test_an_entry_that_names_other_facts(self, operator, broken):
        data, name = self.another(operator, "facts")
        data["facts"] = name
        assert broken() == {"decision-binds-record"}

    @pytest.mark.parametrize("member", ["policy", "reference"])
    def test_an_entry_that_names_what_was_not_in_force(self, operator, broken, member):
        data, name = self.another(operator, member)
        data[member] = name
        assert broken() == {
            f"decision-under-{member}",
            f"dispatch-under-{member}",
            "decision-binds-record",
        }

    @pytest.mark.parametrize("member", ["policy", "reference"])
    def test_a_log_that_puts_in_force_what_no_record_names(self, operator, broken, member):
        data, name = self.another(operator, member)
        old = data[member]
        for entry in operator.entries:
            if entry["data"].get(member) == old:
                entry["data"][member] = name
        assert broken() - {"reference-is-what-was-said"} == {"decision-binds-record"}

    @pytest.mark.parametrize("member", ["policy", "reference"])
    def test_a_log_that_leaves_out_what_is_in_force(self, operator, broken, member):
        act = {"policy": "policy.activated", "reference": "reference.recorded"}[member]
        operator.entries.remove(operator.find(act))
        moves = ("decision", "dispatch", "activation")
        assert broken() == {f"{move}-under-{member}" for move in moves}

    def test_an_entry_with_another_verdict(self, operator, broken):
        data = operator.find("gate.decided", "train")["data"]
        data |= {"verdict": "allow_with_warnings", "approvals": []}
        assert broken() == {"decision-binds-record"}

    def test_a_record_of_another_subject(self, operator, broken):
        decided = operator.find("gate.decided", "train")
        operator.decide_again(decided, subject=f"job:{other('job')}")
        assert broken() == {"decision-binds-record"}


class TestPermits:
    """Level L6: the permit in the bundle gives the right that the entry names."""

    @pytest.mark.parametrize(
        ("claim", "value"),
        [
            ("sub", other("run")),
            ("jti", other("prm")),
            ("job", other("job")),
            *((name, TestFacts.OTHER) for name in ("document", "spec", "dataset", "base_model")),
            ("decision", TestFacts.OTHER),
        ],
    )
    def test_of_something_else(self, operator, broken, claim, value):
        operator.permit(**{claim: value})
        assert broken() == {"dispatch-binds-permit"}

    @pytest.mark.parametrize(
        "times", [{"iat": 0}, {"exp": 0}, {"iat": None}, {"exp": "never"}, {"iat": 2**40}]
    )
    def test_of_another_time(self, operator, broken, times):
        operator.permit(**times)
        assert broken() == {"dispatch-binds-permit"}

    @pytest.mark.parametrize("body", [b"", b"a.b", b"a.!.c", b"a.W10.c", b"a.bm8.c"])
    def test_that_is_none(self, operator, broken, body):
        operator.find("run.dispatching")["data"]["permit_digest"] = operator.keep(body)
        assert broken() == {"dispatch-binds-permit"}

    def test_that_is_still_in_use_is_missing_and_no_lie(self, operator, verified):
        del operator.documents[operator.find("run.dispatching")["data"]["permit_digest"]]
        status, report = verified()

        assert (status, report["verdict"]) == (4, "INCOMPLETE")
        assert report["L8"]["outcome"] == "pass"
        assert report["levels"][6]["outcome"] == "not checked"


def test_a_decision_without_its_documents_is_not_checked(operator, verified):
    del operator.documents[operator.find("gate.decided", "train")["data"]["policy"]]
    status, report = verified()

    assert (status, report["L8"]["outcome"]) == (4, "not checked")


def enclosed(world):
    """The permits that a bundle made now encloses, out of all that were issued."""
    made = world.post("/v1/exports", "vera", {"recipient": "auditor"})
    path = world.folder / "bundle.zip"
    path.write_bytes(world.ask("GET", made["bundle"], "vera").content)
    permits = [e.data["permit_digest"] for e in world.entries() if e.action == "run.dispatching"]
    with open_bundle(path) as bundle:
        return [bundle.document(permit) is not None for permit in permits]


def test_a_bundle_holds_no_permit_that_somebody_could_use(lone_world):
    first, ref = lone_world.running_job()
    assert enclosed(lone_world) == [False]

    lone_world.write_report(first)
    lone_world.engine.end(ref, 0)
    lone_world.worker.work()
    lone_world.running_job()
    assert enclosed(lone_world) == [True, False]

    lone_world.clock.advance(minutes=lone_world.wired.runs.permit_minutes, seconds=-1)
    assert enclosed(lone_world) == [True, False]
    lone_world.clock.advance(seconds=1)
    assert enclosed(lone_world) == [True, True]


def test_a_bundle_holds_no_permit_that_cannot_be_read(lone_world):
    lone_world.running_job()
    lone_world.clock.advance(days=1)
    statement = "UPDATE document SET body = :b WHERE media_type = 'application/jwt'"
    lone_world.tamper("document", statement, b=b"not a token")

    assert enclosed(lone_world) == [False]
