"""What must be true of the entries themselves, whoever signed them (level L6 of a verification).

A signed log can still tell a story that should not have happened. These rules read the entries in
order; each violation names the entry's index and the rule. "Before" is an earlier entry.

The entries
    indices-contiguous          entry n follows entry n - 1
    entry-id-unique             no two entries have one id
    log-is-origin               each entry names the log that it is in

Asking and deciding (`audit.consent`)
    principal-once              one principal.created for each principal
    change-needs-principal      principal.changed, .disabled, erasure.executed: created before
    disabled-acts-no-more       nobody acts who was disabled or erased before
    request-once                one job.submitted or deployment.requested for each subject
    request-needs-principal     … by somebody who was created before
    request-needs-model         deployment.requested: its model version was registered before
    request-binds-document      … and its document says the same person, id, team, model and bytes
    submission-needs-registration
                                job.submitted: data set and base model were registered before
    decision-needs-request      gate.decided: the job or the deployment was asked for before
    decision-after-end          … and was neither refused, cancelled, dispatched nor activated, nor
                                did it expire or end
    no-self-approval            nobody approves what they submitted or requested
    approver-is-human           approval.given: by a person, no service and no model
    approver-has-role           … created before, with the role that they approve in

Waiving (`audit.waivers`)
    waiver-once                 one waiver.requested for each waiver
    waiver-needs-subject        … on a job or deployment that was asked for before
    waiver-needs-person         … by a person who was created before
    waiver-needs-decision       … and decided on before; the policy and the reference data of the
                                latest decision say the next two
    waiver-is-allowed           … the rule, in this version, is one that can be waived
    waiver-too-long             … for no longer than `waiver_max_days`
    waiver-basis-readable       … and both can be read
    waiver-binds-document       … and its document says so, by this requester, on this decision
    waiver-needs-request        waiver.approved, .refused, .revoked: requested for this subject
    waiver-four-eyes            waiver.approved: by nobody who requested it, asked for its subject
                                or approved it before
    waiver-approver-is-human, waiver-approver-has-role
                                … by a person with the role that they approve in
    waiver-approver-may-sign    … which is one of those that the rule names, or officer
    waiver-after-end            … and, as .refused and .revoked, not after a refusal or revocation
    waived-needs-waiver         gate.decided: a waiver counts for each rule and version it waives
    waived-needs-request        … each of which was requested before
    waived-binds-subject        … for this job or deployment
    waived-binds-terms          … by this requester, with this rule, version, category and interval
    waived-binds-reason         … and this sealed reason
    waived-needs-approvals      … and was approved before by these people, at least two of whom
                                neither requested it nor asked for its subject
    waived-needs-roles          … in roles that the rule names in the policy of this decision
    waived-after-refusal, waived-after-revocation
                                … and neither refused nor revoked before
    waived-in-time              … at an instant in its half-open interval

What was decided (`audit.records`)
    decision-record-readable    gate.decided: its record, and that of the shadow, can be read
    decision-binds-record       … and says what the entry says: subject, stage, verdict, policy,
                                reference, facts, approvals; evaluated_at within 10 minutes of the
                                entry's time, valid_until not before it
    dispatch-in-time, activation-in-time
                                run.dispatching, deployment.activated: while the decision is valid

What is in force (`audit.basis`, `audit.signers`, `audit.tables`)
    decision-under-policy       gate.decided: by the policy that was last put in force before
    decision-under-reference    … and by the reference data that was last recorded before
    decision-under-shadow       … and beside the policy that is tried in the shadow, if there is one
    dispatch-under-policy, dispatch-under-reference,
    activation-under-policy, activation-under-reference
                                run.dispatching, deployment.activated: both are still in force
    policy-needs-bundle         policy.activated without a bundle: number 0, and before any bundle
    policy-ships-by-service     … by the service
    policy-number-grows         … with one: its number is greater than that in force
    policy-signed-by-two        … two different maintainers signed it
    policy-by-officer           … and a person with the role officer put it in force
    policy-rollback-is-said     … a policy that was left comes back only where the bundle says so
    policy-bundle-readable      … its bundle can be read
    policy-binds-bundle         … and says this policy, number and rollback, holds the files that it
                                lists and the signatures of these signers, and its day has come
    rejection-keeps-policy      policy.rejected: the policy that was in force stays
    reference-starts-shipped    reference.recorded: first what ships, by the service
    reference-by-officer        … every other row by a person with the role officer
    reference-is-not-law        … and only of tables that say what the installation has, and never
                                in place of a provider, region, service or endpoint that ships
    reference-row-binds-entry   … the row has this key and document, and is declared by who acted
    reference-is-what-was-said  … and all data in force are what ships with the rows that entries
                                name in their places, and nothing else
    reference-readable          … and what is enclosed of them can be read

Running (`audit.consent`, `audit.documents`, `audit.lineage`)
    dispatch-needs-request      run.dispatching: its job was submitted before
    dispatch-needs-decision     … and decided on, at stage train
    dispatch-after-deny         … and the latest verdict is not deny
    dispatch-after-refusal, dispatch-after-expiry
                                … and the latest decision was neither refused nor did it expire
    dispatch-after-waiver       … nor counts a waiver that was revoked or ended before
    dispatch-after-cancel       … and the job was never cancelled before
    dispatch-binds-record       … and the latest record is the one dispatched under
    dispatch-needs-approvals    … and, when it required approval, has it
    dispatch-uses-decision-once … and was not dispatched under before
    dispatch-binds-bytes        document, spec, data set and base model are those of job.submitted
    dispatch-binds-permit       … and its permit gives this run the right to these, then
    dispatch-binds-engine       … on the engine that the job's document asks for
    permit-once                 one run.dispatching for each permit, by its id and by its digest
    dispatch-once               one run.dispatching for each run
    run-needs-dispatch          run.started, .observed, .finished: the run was dispatched before
    run-of-its-job              … for the job that the entry is about
    run-after-finish            … and is not over: nothing comes after run.finished
    finish-binds-report         run.finished: report and artefacts are of this run; after a success
                                both are there, say so, and name the same files

What came of it (`audit.lineage`)
    registered-once             one registration for each data set and base model
    model-needs-run             model_version.registered: this job had this run
    model-needs-success         … which ended as succeeded before
    model-binds-artefacts       … with these artefacts
    model-once                  one model version for each run, one registration for each of them
    model-after-waiver          deployment.requested, .activated: no waiver that the training of the
                                model counted was revoked more than 10 minutes before
    activation-needs-request, activation-needs-decision, activation-after-deny,
    activation-after-refusal, activation-after-expiry, activation-after-waiver,
    activation-binds-record, activation-needs-approvals, activation-uses-decision-once
                                deployment.activated: as for a dispatch, at stage deploy
    activation-binds-model      … of the model version that was requested
    activation-binds-artefacts  … with the artefacts that it was registered with
    activation-needs-card, activation-needs-transparency
                                … after card.issued and transparency.issued with these digests
    activation-once             … once
    activation-after-end        … and not after it was retired or failed
    end-needs-request           deployment.retired, .failed: it was requested before
    end-once                    … and only once

"Has it": different people, none of them a submitter, can be assigned to all the places that the
decision asks for, each in a role that they have and approved in, each bound to this record and
given after it was the latest. One person fills one place, also when they approved in two roles.

Rules about documents hold what is enclosed. For what is not, `missing` says so: such a rule was not
asked, and then the level does not pass.
"""

from collections.abc import Callable
from dataclasses import dataclass

from audit.basis import Basis
from audit.consent import Consent, Subject
from audit.documents import Documents
from audit.enclosed import Enclosed, Load
from audit.event import Event, EventKind, resource_parts
from audit.lineage import Lineage
from audit.records import Records
from audit.signers import Signatures, Trusted
from audit.waivers import Waivers

MAX_VIOLATIONS = 100


@dataclass(frozen=True)
class Violation:
    """One broken rule, at the index of the entry that broke it."""

    index: int
    rule: str
    detail: str


class Invariants:
    """Reads entries in order and collects violations; memory grows with the things named.

    Args:
        origin: the log that the entries must be of.
        load: returns the document with a digest, or None when it is not enclosed.
        trusted: whose signatures on policies count for `signatures`.
    """

    def __init__(self, origin: str, load: Load, trusted: Trusted | None = None) -> None:
        self.signatures = Signatures(trusted or Trusted())
        self.violations: list[Violation] = []
        self.num_violations = 0
        self._origin = origin
        self._next_index = 0
        self._index = 0
        self._ids: set[str] = set()
        self._enclosed = enclosed = Enclosed(load)
        self._consent = consent = Consent(self._violate)
        self._records = Records(self._violate, enclosed)
        self._lineage = lineage = Lineage(self._violate)
        self._waivers = waivers = Waivers(self._violate, consent, enclosed)
        documents = Documents(self._violate, consent, enclosed)
        self._basis = basis = Basis(self._violate, consent, enclosed, self.signatures)
        self._handlers: dict[EventKind, tuple[Callable[[Event, Subject], object], ...]] = {
            **{kind: (handler,) for kind, handler in consent.people.items()},
            EventKind.DATASET_REGISTERED: (lineage.register, documents.register),
            EventKind.BASE_MODEL_REGISTERED: (lineage.register, documents.register),
            EventKind.JOB_SUBMITTED: (consent.ask, lineage.submit, documents.submit),
            EventKind.GATE_DECIDED: (consent.decide, basis.decide, self._decide),
            EventKind.APPROVAL_GIVEN: (consent.approve,),
            EventKind.APPROVAL_REFUSED: (consent.withdraw,),
            EventKind.APPROVAL_EXPIRED: (consent.withdraw,),
            EventKind.JOB_CANCELLED: (consent.cancel,),
            EventKind.WAIVER_REQUESTED: (waivers.request, documents.waive),
            EventKind.WAIVER_APPROVED: (waivers.approve,),
            EventKind.WAIVER_REFUSED: (waivers.close,),
            EventKind.WAIVER_REVOKED: (waivers.close,),
            EventKind.REFERENCE_RECORDED: (basis.record,),
            EventKind.POLICY_ACTIVATED: (basis.activate,),
            EventKind.POLICY_REJECTED: (basis.reject,),
            EventKind.RUN_DISPATCHING: (self._check_dispatch, lineage.dispatch, documents.dispatch),
            EventKind.RUN_STARTED: (lineage.follow,),
            EventKind.RUN_OBSERVED: (lineage.follow,),
            EventKind.RUN_FINISHED: (lineage.finish, documents.finish),
            EventKind.MODEL_VERSION_REGISTERED: (lineage.model, documents.model, waivers.model),
            EventKind.DEPLOYMENT_REQUESTED: (
                consent.ask,
                lineage.request,
                documents.request,
                waivers.check_trained,
            ),
            EventKind.CARD_ISSUED: (lineage.issue,),
            EventKind.TRANSPARENCY_ISSUED: (lineage.issue,),
            EventKind.DEPLOYMENT_ACTIVATED: (self._check_activation, lineage.activate),
            EventKind.DEPLOYMENT_RETIRED: (consent.end, lineage.end),
            EventKind.DEPLOYMENT_FAILED: (consent.end, lineage.end),
        }

    @property
    def missing(self) -> frozenset[str]:
        """Documents that a rule needed and that were not enclosed, by digest."""
        return frozenset(self._enclosed.missing)

    def read(self, index: int, event: Event) -> None:
        """Take in one entry; violations appear in `violations` (the first 100) and are counted."""
        self._index = index
        if index != self._next_index:
            self._violate("indices-contiguous", f"expected index {self._next_index}")
        self._next_index = index + 1
        if event.id in self._ids:
            self._violate("entry-id-unique", f"{event.id} was used before")
        self._ids.add(event.id)
        if event.log != self._origin:
            self._violate("log-is-origin", f"the entry is of log {event.log!a}")
        self._consent.notice(event)
        subject = resource_parts(event.resource)
        for handler in self._handlers.get(event.action, ()):
            handler(event, subject)
        self._records.note(event, subject)

    def _decide(self, event: Event, subject: Subject) -> None:
        self._waivers.decide(event, subject, self._records.decide(event, subject))

    def _check_dispatch(self, event: Event, subject: Subject) -> None:
        self._consent.check("dispatch", subject, str(event.data["record"]))
        self._records.check("dispatch", event, subject)
        self._waivers.check("dispatch", event, subject)
        self._basis.check("dispatch", subject)

    def _check_activation(self, event: Event, subject: Subject) -> None:
        self._consent.check("activation", subject, str(event.data["record"]))
        self._records.check("activation", event, subject)
        self._waivers.check("activation", event, subject)
        self._waivers.check_trained(event, subject)
        self._basis.check("activation", subject)

    def _violate(self, rule: str, detail: str) -> None:
        self.num_violations += 1
        if len(self.violations) < MAX_VIOLATIONS:
            self.violations.append(Violation(self._index, rule, detail))
