"""Which entries an auditor's excerpt shows, and which documents go along with them.

Asked for is a job, a model version, a deployment or a data set by its id; shown is the whole line
that it belongs to: what was registered, asked, decided, run, made and deployed. People, kinds of
entries and a period narrow that down.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, cast

from pydantic import BaseModel as Model
from sqlmodel import Session, col, select

from audit.bundle import references
from audit.event import from_bytes
from audit.selection import Selection, SelectionError
from service.log_tables import AuditEntry
from service.problems import field_problem
from service.tables import DatasetVersion, Deployment, Job, ModelVersion

_BATCH = 1000
# The member of a request, the table that its ids are of.
_Subject: TypeAlias = Job | ModelVersion | Deployment | DatasetVersion
_SUBJECTS: Mapping[str, type[_Subject]] = {
    "jobs": Job,
    "model_versions": ModelVersion,
    "deployments": Deployment,
    "datasets": DatasetVersion,
}


@dataclass
class Shown:
    """What an excerpt will show: how many entries, and which documents they name."""

    entries: int = 0
    documents: set[str] = field(default_factory=set)


def selection_of(session: Session, asked: Model, *, end: int) -> Selection:
    """Turn what was asked for into conditions on entries before `end`.

    Raises:
        Unprocessable: an id that is not there, or a malformed value; names the member.
    """
    given: dict[str, Any] = asked.model_dump(exclude_none=True)
    resources: set[str] = set()
    for name, table in _SUBJECTS.items():
        for subject in given.pop(name, ()):
            row = session.get(table, subject)
            if row is None:
                raise field_problem(f"/selection/{name}", f"there is no `{subject[:80]}`")
            resources |= _line_of(session, cast("_Subject", row))
    document: dict[str, object] = {
        "actors": given.get("people", []),
        "kinds": given.get("kinds", []),
        "resources": sorted(resources),
    }
    document |= {name: _millis(given[name]) for name in ("since", "until") if name in given}
    try:
        selection = Selection.from_document(document)
    except SelectionError as error:
        raise field_problem("/selection", str(error)) from error
    if selection.is_everything:
        raise field_problem("/selection", "asks for nothing; leave it out for the whole log")
    return replace(selection, end=end)


def _millis(instant: str) -> str:
    return f"{instant[:19]}.000Z" if len(instant) > 10 else f"{instant}T00:00:00.000Z"


def _line_of(session: Session, row: _Subject) -> set[str]:
    """Name everything in the line of one row, as entries do."""
    if isinstance(row, Deployment):
        return {row.entity} | _line_of(session, session.get_one(ModelVersion, row.model_version_id))
    if isinstance(row, ModelVersion):
        return _line_of(session, session.get_one(Job, row.job_id))
    if isinstance(row, DatasetVersion):
        jobs = session.exec(select(Job).where(Job.dataset_id == row.id)).all()
        return {row.entity}.union(*(_line_of(session, job) for job in jobs))
    found = {row.entity, f"dataset:{row.dataset_id}", f"base_model:{row.base_model_id}"}
    for model in session.exec(select(ModelVersion).where(ModelVersion.job_id == row.id)).all():
        found.add(model.entity)
        wanted = select(Deployment).where(Deployment.model_version_id == model.id)
        found |= {deployment.entity for deployment in session.exec(wanted).all()}
    return found


def shown_by(session: Session, selection: Selection) -> Shown:
    """Read the entries that a selection may match; one pass, in batches."""
    statement = (
        select(AuditEntry.idx, AuditEntry.body)
        .where(col(AuditEntry.idx) >= selection.first, col(AuditEntry.idx) < selection.end)
        .order_by(col(AuditEntry.idx))
        .execution_options(yield_per=_BATCH)
    )
    found = Shown()
    for index, body in _rows(session.exec(statement)):
        if selection.matches(index, from_bytes(body)):
            found.entries += 1
            found.documents.update(references(body))
    return found


def _rows(rows: Iterable[tuple[int | None, bytes]]) -> Iterable[tuple[int, bytes]]:
    return ((index, body) for index, body in rows if index is not None)
