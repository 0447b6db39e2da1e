"""Reconciliation: the business rows against the entries, in one consistent view of the database.

The triggers of the migrations refuse a change without its entry; who drops a trigger or edits a
table as its owner leaves traces that are found here. Nothing is written.

    row-needs-entry        a governed row names an entry that is there, about it, at its version
    row-is-latest          … and no later entry is about another version of it
    entry-needs-row        what an entry says was made is there: the row, with its id
    versions-contiguous    the entries about a row count its versions 1, 2, 3 … without a gap
    entry-is-intact        an entry's columns and leaf hash say what its bytes say
    index-contiguous       indexes run from 0 to the sequencer's size, each once
    checkpoint-in-order    published sizes do not exceed it
    document-is-there      each digest that an entry names is kept, and is its bytes' own
    seal-is-there          each commitment has its sealed value, unless its subject was erased

Cost: one pass over entries, rows and documents; memory grows with the number of entries.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import cast

from sqlmodel import Session, col, func, select

from audit.bundle import references
from audit.canonical import digest
from audit.event import Event, EventError, EventKind, from_bytes
from audit.merkle import leaf_hash
from service.log_tables import AuditEntry, Document, LogHead, SealedValue, SignedCheckpoint
from service.tables import GOVERNED, Governed

MAX_LISTED = 100
_BATCH = 1000
# The row that an entry of this kind makes has the id of the entry's resource.
_MAKES = {
    EventKind.PRINCIPAL_CREATED: "principal",
    EventKind.DATASET_REGISTERED: "dataset",
    EventKind.BASE_MODEL_REGISTERED: "base_model",
    EventKind.JOB_SUBMITTED: "job",
    EventKind.MODEL_VERSION_REGISTERED: "model_version",
    EventKind.DEPLOYMENT_REQUESTED: "deployment",
    EventKind.EVIDENCE_EXPORTED: "export",
}


@dataclass(frozen=True)
class Difference:
    """One difference: the rule, what it is about, and what was found."""

    rule: str
    subject: str
    found: str


@dataclass
class Reconciliation:
    """What was compared, and what differs: the first `MAX_LISTED`, and how many there are."""

    rows: int = 0
    entries: int = 0
    documents: int = 0
    num_differences: int = 0
    differences: list[Difference] = field(default_factory=list)

    def differ(self, rule: str, subject: str, found: str) -> None:
        """Note a difference."""
        self.num_differences += 1
        if len(self.differences) < MAX_LISTED:
            self.differences.append(Difference(rule, subject, found))


@dataclass
class _Log:
    """What the entries say, by what they are about."""

    entities: dict[str, str] = field(default_factory=dict)
    """Entry id → the entity it is about."""
    versions: defaultdict[str, dict[int, str]] = field(default_factory=lambda: defaultdict(dict))
    """Entity → version → entry id."""
    made: set[tuple[str, str]] = field(default_factory=set)
    erased: set[str] = field(default_factory=set)
    named: set[str] = field(default_factory=set)
    sealed: dict[tuple[str, str], str] = field(default_factory=dict)


def reconcile(session: Session) -> Reconciliation:
    """Compare rows, entries, documents and sealed values; `session` must be one snapshot."""
    done, log = Reconciliation(), _Log()
    _read_entries(session, done, log)
    _check_indexes(session, done)
    _check_rows(session, done, log)
    _check_versions(done, log)
    _check_documents(session, done, log)
    _check_seals(session, done, log)
    return done


def _read_entries(session: Session, done: Reconciliation, log: _Log) -> None:
    statement = select(AuditEntry).order_by(col(AuditEntry.seq))
    for row in session.exec(statement.execution_options(yield_per=_BATCH)):
        done.entries += 1
        if leaf_hash(row.body) != row.leaf_hash:
            done.differ("entry-is-intact", row.id, "its leaf hash is of other bytes")
        try:
            event = from_bytes(row.body)
        except EventError as error:
            done.differ("entry-is-intact", row.id, str(error))
            continue
        entity, _, version = event.resource.partition("@")
        if (row.id, row.entity, row.kind, row.at) != (event.id, entity, event.action, event.at):
            done.differ("entry-is-intact", row.id, "its columns say other than its bytes")
        _note(log, event, entity, int(version or 0), done)
        log.named.update(references(row.body))


def _note(log: _Log, event: Event, entity: str, version: int, done: Reconciliation) -> None:
    log.entities[event.id] = entity
    if version:
        if version in log.versions[entity]:
            done.differ("versions-contiguous", entity, f"version {version} has two entries")
        log.versions[entity][version] = event.id
    if event.action in _MAKES:
        log.made.add((_MAKES[event.action], entity.partition(":")[2]))
    if event.action == EventKind.ERASURE_EXECUTED:
        log.erased.add(entity.partition(":")[2])
    log.sealed.update({(event.id, name): event.actor.ref for name in event.sealed})


def _check_indexes(session: Session, done: Reconciliation) -> None:
    size = session.get_one(LogHead, 1).size
    count, low, high = session.exec(
        select(
            func.count(col(AuditEntry.idx)),
            func.min(AuditEntry.idx),
            func.max(AuditEntry.idx),
        )
    ).one()
    if (count, low or 0, (high if high is not None else -1) + 1) != (size, 0, size):
        found = f"{count} indexes from {low} to {high}, the sequencer counted {size}"
        done.differ("index-contiguous", "log", found)
    newest = session.exec(select(func.max(SignedCheckpoint.size))).one() or 0
    if newest > size:
        done.differ("checkpoint-in-order", "log", f"{newest} entries published, {size} are there")


def _check_rows(session: Session, done: Reconciliation, log: _Log) -> None:
    for table in GOVERNED:
        found: set[str] = set()
        rows = session.exec(select(table).execution_options(yield_per=_BATCH))
        for row in cast("Iterable[Governed]", rows):
            done.rows += 1
            found.add(row.id)
            _check_row(row, done, log)
        kind = getattr(table, "ENTITY", None)  # those without are recorded under another's name
        for made in sorted(made for of, made in log.made if of == kind):
            if made not in found:
                done.differ("entry-needs-row", f"{kind}:{made}", "there is no such row")


def _check_row(row: Governed, done: Reconciliation, log: _Log) -> None:
    name = f"{type(row).__name__} {row.id}"
    entry_id, version = str(vars(row)["entry_id"]), int(vars(row)["version"])
    about = log.entities.get(entry_id)
    if about != row.entity:
        wrong = "an entry that is not there" if about is None else f"an entry about {about}"
        done.differ("row-needs-entry", name, f"names {wrong}")
        return
    versions = log.versions.get(row.entity, {})
    if not row.entity.endswith(f":{row.id}") or not versions:
        return  # it is recorded under what it belongs to, which counts its own versions
    if versions.get(version) != entry_id:
        done.differ("row-needs-entry", name, f"version {version} is not that of its entry")
    if max(versions) != version:
        done.differ("row-is-latest", name, f"version {version}, entries go to {max(versions)}")


def _check_versions(done: Reconciliation, log: _Log) -> None:
    for entity, versions in log.versions.items():
        if sorted(versions) != list(range(1, len(versions) + 1)):
            done.differ("versions-contiguous", entity, f"entries of {_spans(versions)}")


def _spans(versions: Iterable[int]) -> str:
    listed = sorted(versions)
    return ", ".join(map(str, listed[:20])) + (" …" if len(listed) > 20 else "")


def _check_documents(session: Session, done: Reconciliation, log: _Log) -> None:
    kept: set[str] = set()
    for row in session.exec(select(Document).execution_options(yield_per=_BATCH)):
        done.documents += 1
        kept.add(row.digest)
        if digest(row.body) != row.digest:
            done.differ("document-is-there", row.digest, "its bytes have another digest")
    for missing in sorted(log.named - kept):
        done.differ("document-is-there", missing, "no document has this digest")


def _check_seals(session: Session, done: Reconciliation, log: _Log) -> None:
    kept = set(_sealed(session))
    for (entry_id, name), subject in sorted(log.sealed.items()):
        if (entry_id, name) not in kept and subject not in log.erased:
            done.differ("seal-is-there", f"{entry_id} {name}", "its sealed value is gone")
    for entry_id, name in sorted(kept - set(log.sealed)):
        done.differ("seal-is-there", f"{entry_id} {name}", "no entry commits to it")


def _sealed(session: Session) -> Iterator[tuple[str, str]]:
    yield from session.exec(select(SealedValue.entry_id, SealedValue.field)).all()
