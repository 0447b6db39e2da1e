"""The life of a job and of a deployment: every pair of state and move, and the story in the log."""

import functools
import json
import os
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from world import open_world

from audit.event import EventKind
from audit.invariants import Invariants
from service.archive import load
from service.clock import seconds
from service.lifecycle import (
    DEPLOYMENT,
    JOB,
    DeploymentMove,
    DeploymentState,
    IllegalMoveError,
    JobMove,
    JobState,
    follow,
)

GOLDEN = Path(__file__).parents[1] / "golden" / "service" / "lifecycle.json"
TABLES = [
    ("job", JOB, JobState, JobMove),
    ("deployment", DEPLOYMENT, DeploymentState, DeploymentMove),
]
OVER = {"refused", "expired", "succeeded", "failed", "cancelled", "retired"}


def tables():
    return {
        name: {
            f"{state} {move}": " ".join(table[state, move]) if (state, move) in table else "illegal"
            for state in states
            for move in moves
        }
        for name, table, states, moves in TABLES
    }


def test_every_pair_of_state_and_move_is_as_agreed():
    if os.environ.get("PLACET_GOLDEN"):
        GOLDEN.parent.mkdir(parents=True, exist_ok=True)
        GOLDEN.write_text(json.dumps(tables(), indent=1) + "\n")

    assert json.loads(GOLDEN.read_text()) == tables()


@pytest.mark.parametrize(("name", "table", "states", "moves"), TABLES)
def test_an_illegal_move_names_the_legal_ones(name, table, states, moves):
    for state in states:
        legal = sorted(move for at, move in table if at == state)
        for move in moves:
            if (state, move) in table:
                assert follow(table, state, move) == table[state, move]
            else:
                with pytest.raises(IllegalMoveError) as caught:
                    follow(table, state, move)
                assert (", ".join(legal) or "nothing") in str(caught.value)


@pytest.mark.parametrize(("name", "table", "states", "moves"), TABLES)
def test_what_is_over_stays_over_and_everything_else_can_end(name, table, states, moves):
    left = {state for state, _ in table}
    for state in states:
        assert (state in left) == (state not in OVER), state


@pytest.mark.parametrize(("name", "table", "states", "moves"), TABLES)
def test_only_a_decision_of_the_gate_leads_out_of_denied(name, table, states, moves):
    left = {move: kind for (state, move), (_, kind) in table.items() if state == "denied"}
    assert left == dict.fromkeys(("deny", "ask", "allow"), EventKind.GATE_DECIDED)


def test_a_denied_job_never_runs():
    reached_by = {
        state for (state, move), (after, _) in JOB.items() if after is JobState.DISPATCHING
    }
    assert reached_by == {JobState.APPROVED}


def test_every_move_names_an_entry():
    for _, table, _, _ in TABLES:
        assert {kind for _, kind in table.values()} <= set(EventKind)


def replayed(entries, job_id):
    """Tell a job's state from the log alone."""
    state, open_run = None, False
    for entry in entries:
        if entry.resource.partition("@")[0] != f"job:{job_id}":
            continue
        match entry.action:
            case EventKind.JOB_SUBMITTED:
                state = "submitted"
            case EventKind.GATE_DECIDED:
                verdict = entry.data["verdict"]
                state = {"deny": "denied", "require_approval": "awaiting_approval"}.get(
                    verdict, "approved"
                )
            case EventKind.APPROVAL_GIVEN:
                state = "approved"  # the shipped rules ask for one officer here
            case EventKind.APPROVAL_REFUSED:
                state = "refused"
            case EventKind.APPROVAL_EXPIRED:
                state = "expired"
            case EventKind.JOB_CANCELLED:
                state = "cancelling" if open_run else "cancelled"
            case EventKind.RUN_DISPATCHING:
                state, open_run = "dispatching", True
            case EventKind.RUN_STARTED:
                state = "running"
            case EventKind.RUN_FINISHED:
                outcome = entry.data["outcome"]
                state = outcome if outcome in {"succeeded", "cancelled"} else "failed"
    return state


class JobsMachine(RuleBasedStateMachine):
    """Random requests and passes of the worker; table and log must tell the same story."""

    folders: list[Path] = []  # noqa: RUF012 — filled by the test

    def __init__(self):
        super().__init__()
        folder = self.folders[0] / f"m{len(list(self.folders[0].iterdir()))}"
        folder.mkdir()
        self.world = open_world(folder, f"sqlite:///{folder / 'placet.db'}")
        self.jobs = []

    def teardown(self):
        self.world.wired.database.dispose()

    def pick(self, number):
        return self.world.job(self.jobs[number % len(self.jobs)], "vera")

    def try_(self, who, path, body, seen):
        answer = self.world.ask("POST", path, who, body, seen=seen)
        assert answer.status in {200, 201, 403, 409, 412, 422}, answer.content

    @precondition(lambda self: len(self.jobs) < 4)
    @rule(who=st.sampled_from(["ada", "both"]), budget=st.sampled_from([1000, 1000, 0]))
    def submit(self, who, budget):
        self.jobs.append(self.world.submit(who, budget_cents=budget)["id"])

    @precondition(lambda self: self.jobs)
    @rule(
        number=st.integers(0, 3),
        who=st.sampled_from(["olaf", "omar", "both", "ada"]),
        outcome=st.sampled_from(["given", "given", "refused"]),
        stale=st.sampled_from([0, 0, 0, -1]),
    )
    def decide(self, number, who, outcome, stale):
        job = self.pick(number)
        self.try_(
            who,
            f"/v1/jobs/{job['id']}/approvals",
            {"outcome": outcome, "reason": "because"},
            job["version"] + stale,
        )

    @precondition(lambda self: self.jobs)
    @rule(number=st.integers(0, 3), who=st.sampled_from(["ada", "olaf", "eve"]))
    def cancel(self, number, who):
        job = self.pick(number)
        answer = self.world.ask("POST", f"/v1/jobs/{job['id']}/cancel", who, seen=job["version"])
        assert answer.status in {200, 404, 409}

    @precondition(lambda self: self.jobs)
    @rule(number=st.integers(0, 3), who=st.sampled_from(["ada", "olaf"]))
    def ask_for_a_waiver(self, number, who):
        ends_at = seconds(self.world.clock() + timedelta(hours=2))
        body = {"rule": "budget.limit", "reason": "x", "ticket": "T-1", "expires_at": ends_at}
        self.try_(who, f"/v1/jobs/{self.pick(number)['id']}/waivers", body, None)

    @rule(
        number=st.integers(0, 3),
        who=st.sampled_from(["olaf", "omar", "both", "ada"]),
        act=st.sampled_from(["approved", "approved", "approved", "refused", "revoked"]),
    )
    def sign(self, number, who, act):
        found = self.world.get("/v1/waivers", "vera")["items"]
        if not found:
            return
        waiver = found[number % len(found)]
        path = f"/v1/waivers/{waiver['id']}"
        if act == "revoked":
            self.try_(who, f"{path}/revocation", {"reason": "x"}, None)
        else:
            body = {"outcome": act, "reason": "x"}
            self.try_(who, f"{path}/decisions", body, waiver["version"])

    @rule()
    def work(self):
        self.world.worker.work()

    @precondition(lambda self: self.jobs)
    @rule(number=st.integers(0, 3), code=st.sampled_from([0, 1, 2]), with_report=st.booleans())
    def end(self, number, code, with_report):
        job = self.pick(number)
        for run in job["runs"]:
            if run["id"] in self.world.engine.runs and job["state"] in {"running", "cancelling"}:
                if with_report:
                    self.world.write_report(job)
                self.world.engine.end(f"fake:{run['id']}", code)

    @rule(hours=st.sampled_from([1, 3, 80]))
    def wait(self, hours):
        self.world.clock.advance(hours=hours)

    @invariant()
    def table_and_log_agree(self):
        entries = self.world.entries()
        for job_id in self.jobs:
            assert self.world.job(job_id, "vera")["state"] == replayed(entries, job_id)

    @invariant()
    def the_log_tells_an_allowed_story(self):
        with self.world.wired.transactions.read() as session:
            invariants = Invariants(
                self.world.wired.transactions.origin, functools.partial(load, session)
            )
            for index, entry in enumerate(self.world.entries()):
                invariants.read(index, entry)
        assert invariants.violations == []

    @invariant()
    def nothing_runs_that_was_not_dispatched_once(self):
        dispatched = [e.data["run"] for e in self.world.entries() if e.action == "run.dispatching"]
        assert len(dispatched) == len(set(dispatched))
        assert set(self.world.engine.runs) <= set(dispatched)


def test_the_table_and_the_log_tell_the_same_story(tmp_path):
    JobsMachine.folders[:] = [tmp_path]
    run = settings(
        max_examples=8,
        stateful_step_count=18,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(JobsMachine, settings=run)
