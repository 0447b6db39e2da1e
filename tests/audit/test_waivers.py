"""Each way a signed log can pretend that somebody was excused, and the rule that names it."""

import json
from datetime import datetime

import pytest

from audit import verify as verifying
from audit.canonical import canonical


@pytest.fixture
def rules(world, told):
    """Return a function that reads events and returns [(index, rule)] of the violations.

    Documents are enclosed as in an export. The prologue comes first; events count from 0.
    """

    def read(*events):
        before = world.prologue()
        invariants = told([*before, *events])
        return [(each.index - len(before), each.rule) for each in invariants.violations]

    return read


def excused(world, *, record=None, without=(), extra=(), document=None):
    """A job denied, waived by two officers, decided again and run; without some of it."""
    record = world.waived_record() if record is None else record
    steps = {
        "submitted": world.submitted(),
        "denied": world.decided("deny", world.recorded("deny")),
        "requested": world.waiver_requested(document=document),
        "first": world.waiver_approved(),
        "second": world.waiver_approved(world.second),
    }
    kept = [event for name, event in steps.items() if name not in without]
    return [
        *kept,
        *extra,
        world.decided("allow_with_warnings", record),
        world.dispatching(record),
    ]


def denied(world, actor=None, **named):
    """A job that was denied, by a policy or by reference data with the digests given."""
    record = world.recorded("deny", **named)
    job = world.job_text(submitted_by=actor or world.submitter)
    return [
        world.submitted(actor, document=world.document(job)),
        world.decided("deny", record, **named),
    ]


def test_a_waiver_of_two_officers_breaks_no_rule(world, rules):
    assert rules(*excused(world)) == []


class TestForgedRecords:
    """The seven false stories: the record says waived, the log does not."""

    def test_nobody_requested_it(self, world, rules):
        found = rules(*excused(world, without=("requested", "first", "second")))
        assert found == [(2, "waived-needs-request"), (2, "waived-needs-waiver")]

    def test_nobody_approved_it(self, world, rules):
        found = rules(*excused(world, without=("first", "second")))
        assert found == [(3, "waived-needs-approvals"), (3, "waived-needs-waiver")]

    def test_one_person_approved_it(self, world, rules):
        found = rules(*excused(world, without=("second",)))
        assert found == [(4, "waived-needs-approvals"), (4, "waived-needs-waiver")]

    def test_one_person_approved_it_twice(self, world, rules):
        twice = world.waiver_approved()
        record = world.waived_record(
            waivers=[world.counted(approvers=[world.officer, world.officer])]
        )
        found = rules(*excused(world, record=record, without=("second",), extra=[twice]))
        assert found == [
            (4, "waiver-four-eyes"),
            (5, "waived-needs-approvals"),
            (5, "waived-needs-waiver"),
        ]

    def test_it_was_approved_after_the_decision(self, world, rules):
        record = world.waived_record()
        events = [
            *excused(world, without=("second",))[:-1],
            world.waiver_approved(world.second),
            world.dispatching(record),
        ]
        assert rules(*events) == [(4, "waived-needs-approvals"), (4, "waived-needs-waiver")]

    @pytest.mark.parametrize(
        ("kind", "ending"), [("waiver.revoked", "revocation"), ("waiver.refused", "refusal")]
    )
    def test_it_was_over_before_the_decision(self, world, rules, kind, ending):
        data = {"role": "officer"} if ending == "refusal" else {}
        end = world.event(kind, actor=world.officer, waiver=world.waiver, **data)
        found = rules(*excused(world, extra=[end]))
        assert found == [(6, f"waived-after-{ending}"), (6, "waived-needs-waiver")]

    @pytest.mark.parametrize("at", ["2026-11-30T11:59:59Z", "2026-12-07T00:00:00Z"])
    def test_it_did_not_hold_at_that_instant(self, world, rules, change, at):
        *before, decided, dispatching = excused(world, record=world.waived_record(evaluated_at=at))
        then = f"{at[:-1]}.500Z"
        found = rules(*before, change(decided, at=then), change(dispatching, at=then))
        assert found[:2] == [(5, "waived-in-time"), (5, "waived-needs-waiver")]

    @pytest.mark.parametrize("result", [{"rule": "hds.certificate"}, {"version": "1.0.1"}])
    def test_it_was_for_another_rule_or_version(self, world, rules, result):
        waived = {"rule": "budget.limit", "version": "1.0.0", "outcome": "waived", **result}
        found = rules(*excused(world, record=world.waived_record(results=[waived])))
        assert found == [(5, "waived-needs-waiver")]


class TestUse:
    """A decision that counted a waiver is worth nothing once the waiver is over."""

    def test_it_was_revoked_before_the_dispatch(self, world, rules):
        *before, dispatching = excused(world)
        end = world.event("waiver.revoked", actor=world.officer, waiver=world.waiver)
        assert rules(*before, end, dispatching) == [(7, "dispatch-after-waiver")]

    @pytest.mark.parametrize(
        ("at", "expected"),
        [
            ("2026-12-06T23:59:59.999Z", []),
            ("2026-12-07T00:00:00.000Z", [(6, "dispatch-after-waiver")]),
        ],
    )
    def test_it_had_ended_before_the_dispatch(self, world, rules, change, at, expected):
        *before, dispatching = excused(world)
        issued = int(datetime.fromisoformat(at).timestamp())
        permit = world.permit(dispatching.data, iat=issued, exp=issued + 60)
        data = {**dispatching.data, "permit_digest": world.document(permit)}
        assert rules(*before, change(dispatching, at=at, data=data)) == expected

    def test_a_later_decision_without_it_may_be_used(self, world, rules):
        *before, _ = excused(world)
        end = world.event("waiver.revoked", actor=world.officer, waiver=world.waiver)
        record = world.recorded("allow")
        again = world.decided("allow", record)
        assert rules(*before, end, again, world.dispatching(record)) == []


class TestBinding:
    @pytest.mark.parametrize(
        ("member", "value", "rule"),
        [
            ("rule", "hds.certificate", "waived-binds-terms"),
            ("rule_version", "2.0.0", "waived-binds-terms"),
            ("category", "mitigated", "waived-binds-terms"),
            ("not_before", "2026-11-29T00:00:00Z", "waived-binds-terms"),
            ("expires_at", "2027-12-07T00:00:00Z", "waived-binds-terms"),
            ("reason_digest", "sha256:" + "0" * 64, "waived-binds-reason"),
            ("subject", "job:job_00000000000000000000000009", "waived-binds-subject"),
        ],
    )
    def test_other_terms_than_were_requested(self, world, rules, member, value, rule):
        record = world.waived_record(waivers=[world.counted(**{member: value})])
        assert (5, rule) in rules(*excused(world, record=record))

    def test_another_requester(self, world, rules):
        record = world.waived_record(waivers=[world.counted(requester=world.officer)])
        assert (5, "waived-binds-terms") in rules(*excused(world, record=record))

    def test_other_approvers(self, world, rules, ids):
        approvers = [world.officer, ids("prn", 9)]
        record = world.waived_record(waivers=[world.counted(approvers=approvers)])
        assert (5, "waived-needs-approvals") in rules(*excused(world, record=record))

    def test_the_waiver_of_another_job(self, world, rules, ids, change):
        other = f"job:{ids('job', 2)}"
        said = {"subject": other, "record": world.document(world.recorded("deny", subject=other))}
        events = excused(world, document=said)
        moved = [
            change(event, resource=other) if str(event.action).startswith("waiver.") else event
            for event in events
        ]
        record = world.recorded("deny", subject=other)
        job = world.document(world.job_text(job=ids("job", 2)))
        second = [world.submitted(document=job), world.decided("deny", record)]
        found = rules(*(change(event, resource=other) for event in second), *moved)
        assert found == [(7, "waived-binds-subject"), (7, "waived-needs-waiver")]

    def test_a_waived_rule_without_any_waiver(self, world, rules):
        found = rules(*excused(world, record=world.waived_record(waivers=[])))
        assert found == [(5, "waived-needs-waiver")]

    def test_a_waiver_that_is_named_but_waives_nothing_is_checked_too(self, world, rules):
        record = world.waived_record(results=[])
        found = rules(*excused(world, record=record, without=("second",)))
        assert found == [(4, "waived-needs-approvals")]

    @pytest.mark.parametrize("spelt", ['"\\u0077aived"', '"waive\\u0064"'])
    def test_an_escaped_spelling_hides_nothing(self, world, rules, spelt):
        record = world.waived_record(waivers=[]).replace('"waived"', spelt)
        found = rules(*excused(world, record=record))
        assert found == [(5, "waived-needs-waiver")]

    @pytest.mark.parametrize(
        "record", ['{"waivers":[{}]}', "waive", '{"waivers":1}', '["waived"]', '{"waivers":[1]}']
    )
    def test_a_record_that_cannot_be_read_is_named(self, world, rules, record):
        assert (5, "decision-record-readable") in rules(*excused(world, record=record))

    def test_a_record_that_is_not_enclosed_is_missing_and_no_violation(self, world, told):
        events = [*world.prologue(), *excused(world)]
        record = str(events[-1].data["record"])
        del world.documents[record]
        invariants = told(events)
        assert (invariants.violations, invariants.missing) == ([], {record})


class TestSigning:
    def test_the_requester_approves_it(self, world, rules):
        events = [
            *denied(world),
            world.waiver_requested(world.officer),
            world.waiver_approved(world.officer),
        ]
        assert rules(*events) == [(3, "waiver-four-eyes")]

    def test_the_submitter_approves_it(self, world, rules):
        before = denied(world, actor=world.officer)
        events = [*before, world.waiver_requested(world.second), world.waiver_approved()]
        assert rules(*events) == [(3, "waiver-four-eyes")]

    @pytest.mark.parametrize("kind", ["service", "model"])
    def test_a_machine_signs_nothing(self, world, rules, change, kind):
        def by(event):
            return change(event, actor=change(event.actor, kind=kind))

        events = [*denied(world), world.waiver_requested(), by(world.waiver_approved())]
        assert rules(*events) == [(3, "waiver-approver-is-human")]
        assert rules(*denied(world), by(world.waiver_requested())) == [(2, "waiver-needs-person")]

    def test_an_approver_has_the_role(self, world, rules, ids):
        before = [*denied(world), world.waiver_requested()]
        assert rules(*before, world.waiver_approved(ids("prn", 9))) == [
            (3, "waiver-approver-has-role")
        ]
        named = world.policy(approvals=[{"role": "dpo", "count": 1}])
        before = [
            world.enforced(named),
            *denied(world, policy=world.document(named)),
            world.waiver_requested(),
        ]
        assert rules(*before, world.waiver_approved(world.second, "dpo")) == [
            (4, "waiver-approver-has-role")
        ]
        assert rules(*before, world.waiver_approved(role="dpo")) == []

    def test_a_waiver_is_requested_once(self, world, rules):
        events = [*denied(world), world.waiver_requested(), world.waiver_requested()]
        assert rules(*events) == [(3, "waiver-once")]

    def test_a_waiver_is_for_something_that_somebody_asked_for(self, world, rules):
        assert rules(world.waiver_requested()) == [
            (0, "waiver-needs-subject"),
            (0, "waiver-needs-decision"),
        ]

    def test_a_stranger_requests_nothing(self, world, rules, ids):
        events = [*denied(world), world.waiver_requested(ids("prn", 9))]
        assert rules(*events) == [(2, "waiver-needs-person")]

    @pytest.mark.parametrize("kind", ["waiver.approved", "waiver.refused", "waiver.revoked"])
    def test_nothing_is_decided_that_was_not_requested(self, world, rules, kind):
        data = {} if kind == "waiver.revoked" else {"role": "officer"}
        event = world.event(kind, actor=world.officer, waiver=world.waiver, **data)
        assert rules(world.submitted(), event) == [(1, "waiver-needs-request")]

    def test_what_is_over_is_not_decided_again(self, world, rules):
        revoked = world.event("waiver.revoked", actor=world.officer, waiver=world.waiver)
        again = world.event("waiver.revoked", actor=world.officer, waiver=world.waiver)
        events = [*denied(world), world.waiver_requested(), revoked, again]
        assert rules(*events, world.waiver_approved()) == [
            (4, "waiver-after-end"),
            (5, "waiver-after-end"),
        ]


class TestTerms:
    """What may be waived, by whom and how long stands in the policy and the reference data."""

    def test_before_anything_was_decided(self, world, rules):
        events = [world.submitted(), world.waiver_requested()]
        assert rules(*events) == [(1, "waiver-needs-decision")]

    @pytest.mark.parametrize(
        ("expires_at", "expected"),
        [
            ("2026-12-30T12:00:00Z", []),
            ("2026-12-30T12:00:01Z", [(2, "waiver-too-long")]),
            ("2026-11-30T12:00:00Z", [(2, "waiver-too-long")]),
            ("2026-11-29T12:00:00Z", [(2, "waiver-too-long")]),
        ],
    )
    def test_longer_than_the_reference_data_allow(self, world, rules, expires_at, expected):
        events = [*denied(world), world.waiver_requested(expires_at=expires_at)]
        assert rules(*events) == expected

    @pytest.mark.parametrize(
        ("thresholds", "expected"),
        [
            ([{"id": "waiver_max_days.budget.limit", "value": 7}], []),
            ([{"id": "waiver_max_days.budget.limit", "value": 6}], [(3, "waiver-too-long")]),
            ([{"id": "waiver_max_days.another", "value": 90}], [(3, "waiver-too-long")]),
            ([{"id": "waiver_max_days", "value": "90"}], [(3, "waiver-too-long")]),
            ([], [(3, "waiver-too-long")]),
        ],
    )
    def test_the_row_of_the_rule_comes_first_and_without_a_row_nothing_lasts(
        self, world, rules, thresholds, expected
    ):
        rows = world.reference(thresholds=thresholds)
        named = {"reference": world.document(rows)}
        before = [world.referenced(rows), *denied(world, **named)]
        assert rules(*before, world.waiver_requested()) == expected

    @pytest.mark.parametrize(
        "asked", [{"rule": "hds.certificate"}, {"rule": "no.rule"}, {"rule_version": "2.0.0"}]
    )
    def test_a_rule_that_cannot_be_waived(self, world, rules, asked):
        events = [*denied(world), world.waiver_requested(**asked)]
        assert rules(*events) == [(2, "waiver-is-allowed")]

    def test_two_who_signed_in_a_role_that_the_rule_does_not_name(self, world, rules):
        named = world.policy(approvals=[{"role": "dpo", "count": 1}])
        record = world.waived_record(policy=world.document(named))
        events = [
            world.enforced(named),
            *denied(world, policy=world.document(named)),
            world.waiver_requested(),
            world.waiver_approved(),
            world.waiver_approved(world.second),
            world.decided("allow_with_warnings", record, policy=world.document(named)),
        ]
        assert rules(*events) == [
            (4, "waiver-approver-may-sign"),
            (5, "waiver-approver-may-sign"),
            (6, "waived-needs-approvals"),
            (6, "waived-needs-waiver"),
        ]

    def test_a_role_that_the_policy_of_the_decision_does_not_name_any_more(self, world, rules):
        later = world.policy(approvals=[{"role": "dpo", "count": 1}])
        named = {"policy": world.document(later)}
        events = excused(world)[:5]
        decided = world.decided("allow_with_warnings", world.waived_record(**named), **named)
        assert rules(*events, world.enforced(later), decided) == [
            (6, "waived-needs-roles"),
            (6, "waived-needs-waiver"),
        ]

    @pytest.mark.parametrize("which", ["policy", "reference"])
    def test_without_the_document_nothing_is_said_and_it_is_missing(self, world, told, which):
        events = [*world.prologue(), *excused(world)]
        gone = world.document(which)
        del world.documents[gone]
        invariants = told(events)
        assert (invariants.violations, invariants.missing) == ([], {gone})

    @pytest.mark.parametrize("which", ["policy", "reference"])
    @pytest.mark.parametrize("change", [{"format": "another"}, {"rules": [{}], "tables": []}])
    def test_a_document_that_cannot_be_read_is_named(self, world, rules, which, change):
        text = getattr(world, which)()
        spoilt = canonical({**json.loads(text), **change}).decode()
        act = {"policy": world.enforced, "reference": world.referenced}[which](spoilt)
        before = [act, *denied(world, **{which: world.document(spoilt)})]
        assert rules(*before, world.waiver_requested()) == [(3, "waiver-basis-readable")]


class TestVerification:
    """The same through an export: the verifier reads the enclosed records."""

    def verified(self, world, tmp_path, events):
        path = tmp_path / "evidence.zip"
        path.write_bytes(world.export(world.entries([*world.prologue(), *events])))
        report = verifying.verify(path, [world.vkey])
        return {level.id: level.outcome for level in report.levels}, [
            violation.rule for violation in report.violations
        ]

    def test_an_honest_story_verifies(self, world, tmp_path):
        levels, violations = self.verified(world, tmp_path, excused(world))
        assert (levels["L6"], violations) == ("pass", [])

    def test_a_forged_one_does_not(self, world, tmp_path):
        events = excused(world, without=("first", "second"))
        levels, violations = self.verified(world, tmp_path, events)
        assert levels["L6"] == "fail"
        assert violations == ["waived-needs-approvals", "waived-needs-waiver"]

    def test_leaving_the_record_out_does_not_help(self, world, tmp_path):
        events = excused(world, without=("first", "second"))
        record = next(e.data["record"] for e in events[::-1] if e.action == "gate.decided")
        entries = world.entries([*world.prologue(), *events])
        del world.documents[record]
        path = tmp_path / "evidence.zip"
        path.write_bytes(world.export(entries))
        report = verifying.verify(path, [world.vkey])
        assert {level.id: level.outcome for level in report.levels}["L7"] == "fail"
        assert report.exit_code == 4


def test_the_record_of_the_gate_has_the_members_that_are_read_here(world):
    record = json.loads(world.waived_record())
    assert set(world.counted()) == {
        *("format", "id", "rule", "rule_version", "subject", "category", "reason_digest"),
        *("requester", "approvers", "not_before", "expires_at", "revoked_at"),
    }
    assert record["results"][0].keys() == {"rule", "version", "outcome"}
