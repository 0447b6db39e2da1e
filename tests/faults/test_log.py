"""The log under kill -9: of sequencers, of publishers and of PostgreSQL, while people write.

`KILLS=300 pytest tests/faults/test_log.py` is the long run; the default is short.
"""

import contextlib
import multiprocessing
import os
import random
import sys
import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest
from postgres import Postgres, postgres
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from audit.event import from_bytes
from audit.keys import Ed25519Signer, VerifyKey
from audit.merkle import check_consistency, leaf_hashes, root
from audit.note import open_note, parse_checkpoint
from audit.tiles import TileReader, parse_entries, tile_path
from service.database import open_engine
from service.ledger import Guard, Ledger
from service.objects.files import FileObjects
from service.principals import Role, create_principal
from service.reconciling import reconcile
from service.schema import migrate
from service.transaction import Transactions

KILLS = int(os.environ.get("KILLS", "24"))
WRITERS, ORIGIN = 8, "faults.example/log"


def now() -> datetime:
    return datetime.now(UTC)


def ledger_of(url: str, folder: Path) -> Ledger:
    return Ledger(
        engine=open_engine(url),
        objects=FileObjects([folder]),
        prefix=(folder / "log").as_uri(),
        origin=ORIGIN,
        signers=[Ed25519Signer.from_seed(ORIGIN, b"\x05" * 32)],
        guard=Guard(folder / "guard" / "signer.json"),
        clock=now,
    )


def work(url: str, folder: str) -> None:
    """Sequence and publish without end; runs in a process of its own, to be killed."""
    ledger = ledger_of(url, Path(folder))
    while True:
        with contextlib.suppress(SQLAlchemyError):  # PostgreSQL is being killed as well
            ledger.sequence()
            ledger.publish()
        time.sleep(0.005)


@dataclass
class Writers:
    """People who write; each keeps what was confirmed to them."""

    transactions: Transactions
    is_over: threading.Event = field(default_factory=threading.Event)
    confirmed: list[str] = field(default_factory=list)
    unsure: int = 0

    def run(self) -> None:
        while not self.is_over.is_set():
            try:
                with self.transactions.write() as tx:
                    row = create_principal(
                        tx, name="W", kind="human", roles=[Role.AUDITOR], teams=[]
                    )
                    made = row.id
            except SQLAlchemyError:
                self.unsure += 1
                time.sleep(0.05)
            else:
                self.confirmed.append(made)


@contextlib.contextmanager
def writing(transactions: Transactions):
    writers = Writers(transactions)
    threads = [threading.Thread(target=writers.run) for _ in range(WRITERS)]
    for thread in threads:
        thread.start()
    try:
        yield writers
    finally:
        writers.is_over.set()
        for thread in threads:
            thread.join()


def agrees(ledger: Ledger, transactions: Transactions, writers: Writers) -> None:
    """Every claim about the log, after the last kill."""
    ledger.sequence()
    ledger.publish()
    with transactions.snapshot() as session:
        done = reconcile(session)
        assert [str(one) for one in done.differences] == []
        rows = (
            session.connection()
            .execute(text("SELECT idx, body FROM audit_entry ORDER BY idx"))
            .all()
        )
        kept = set(session.connection().execute(text("SELECT id FROM principal")).scalars())
        notes = session.connection().execute(text("SELECT note FROM checkpoint")).scalars().all()
    assert [idx for idx, _ in rows] == list(range(len(rows)))  # no gap, no double
    bodies = [bytes(body) for _, body in rows]
    created = [e.resource.split(":")[1].split("@")[0] for e in map(from_bytes, bodies)]
    assert len(created) == len(set(created))
    assert set(created) == kept  # business rows are entries
    assert set(writers.confirmed) <= kept  # nothing that was confirmed is lost
    assert len(kept) <= len(writers.confirmed) + writers.unsure
    published(ledger, bodies, [bytes(note) for note in notes])


def published(ledger: Ledger, bodies: list[bytes], notes: list[bytes]) -> None:
    """All checkpoints are of one history, and the tiles hold it."""
    keys = [VerifyKey.parse(vkey) for vkey in ledger.vkeys]
    signed = sorted(
        {
            (seen.size, seen.root)
            for seen in (parse_checkpoint(open_note(note, keys).text) for note in notes)
        }
    )
    assert len({size for size, _ in signed}) == len(signed)
    newest, newest_root = signed[-1]
    assert newest == len(bodies)
    assert newest_root == root(leaf_hashes(bodies))
    reader = TileReader(newest, ledger.read)
    for size, old in signed:
        check_consistency(size, newest, reader.prove_consistency(size), old, newest_root)
    last = (newest - 1) // 256
    width = newest - last * 256
    held = parse_entries(ledger.read(tile_path("entries", last, width)), width)
    assert held == bodies[last * 256 :]


@pytest.fixture
def server():
    with postgres(is_durable=True) as running:
        yield running


@pytest.mark.postgres
def test_no_kill_loses_doubles_or_skips_an_entry(server: Postgres, tmp_path):
    url = server.create_database()
    engine = open_engine(url)
    migrate(engine)
    transactions = Transactions(engine=engine, origin=ORIGIN, clock=now, seal_key=bytes(32))
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["service.ledger", __name__])
    rng = random.Random(0)

    def started():
        worker = context.Process(target=work, args=(url, str(tmp_path)), daemon=True)
        worker.start()
        return worker

    with writing(transactions) as writers:
        workers = [started(), started()]  # two that compete
        for number in range(KILLS):
            time.sleep(rng.uniform(0.01, 0.25))
            if number % 12 == 11:
                server.kill()
                server.restart()
                continue
            victim = rng.randrange(2)
            workers[victim].kill()
            workers[victim].join()
            workers[victim] = started()
        for worker in workers:
            worker.kill()
            worker.join()
    assert len(writers.confirmed) > KILLS
    sys.stderr.write(
        f"{KILLS} kills, {len(writers.confirmed)} confirmed, {writers.unsure} unsure\n"
    )
    ledger = ledger_of(url, tmp_path)
    agrees(ledger, transactions, writers)
    ledger.engine.dispose()
    engine.dispose()
