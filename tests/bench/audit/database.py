"""What an entry costs PostgreSQL: the same change plain, with its entry, and with a head-row chain.

A change reads who asks, keeps a document and changes one row, as an approval does. Every way
commits durably. Tables, triggers and entries are the product's; the plain table has no triggers.
"""

import argparse
import hashlib
import multiprocessing
import random
import secrets
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

import psycopg
from rows import Row
from sqlalchemy import create_engine
from tree import entries

from audit.merkle import leaf_hash

sys.path.append(str(Path(__file__).parents[2]))
from postgres import Postgres, postgres

from audit.keys import Ed25519Signer
from service.ledger import Guard, Ledger
from service.objects.files import FileObjects
from service.schema import migrate

_PROCESSES = 4
Connection: TypeAlias = "psycopg.Connection[Any]"


def measured(arguments: argparse.Namespace) -> Iterator[Row]:
    """Measure three ways to commit a change, and the sequencer behind the second."""
    with postgres(is_durable=True) as server:
        url = server.create_database()
        name = url.split("?")[0].rsplit("/", 1)[1]
        migrate(create_engine(url))
        with server.connect(name) as connection:
            _tables(connection)
        taken: dict[str, list[float]] = {what: [] for what in _WAYS}
        for _ in range(3):  # in turns, since a disk has good and bad minutes
            for what in _WAYS:
                taken[what] += _load(server, name, what, arguments)
        for what, times in taken.items():
            yield _row(f"transactions, {what}", times, 3 * arguments.seconds, arguments.clients)
        yield from _sequenced(url, arguments)


def _row(what: str, times: list[float], seconds: float, clients: int) -> Row:
    times.sort()
    return Row(
        what,
        per_s=len(times) / seconds,
        p50_ms=statistics.median(times) * 1e3,
        p99_ms=times[len(times) * 99 // 100] * 1e3,
        more=f"{clients} clients",
    )


def _load(server: Postgres, name: str, what: str, arguments: argparse.Namespace) -> list[float]:
    """Run all clients for a while; return how long each transaction took, in seconds."""
    context = multiprocessing.get_context("spawn")
    threads = max(1, arguments.clients // _PROCESSES)
    with context.Pool(min(_PROCESSES, arguments.clients)) as pool:
        asked = [(server.sockets, name, what, threads, arguments.seconds)] * min(
            _PROCESSES, arguments.clients
        )
        return [one for part in pool.starmap(_clients, asked) for one in part]


def _clients(sockets: Path, name: str, what: str, threads: int, seconds: float) -> list[float]:
    found: list[float] = []
    way = _WAYS[what]

    def client() -> None:
        with psycopg.connect(host=str(sockets), user="postgres", dbname=name) as connection:
            until = time.perf_counter() + seconds
            while (start := time.perf_counter()) < until:
                way(connection)
                found.append(time.perf_counter() - start)

    running = [threading.Thread(target=client) for _ in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return found


_ROWS = 4096  # more than clients, so that they seldom want the same row
_READ = "SELECT roles, teams, disabled_at FROM {} WHERE id = %s"
_KEEP = "INSERT INTO bench_document (digest, body) VALUES (%s, %s)"
_CHANGE = "UPDATE {} SET version = version + 1, entry_id = %s WHERE id = %s"
_ENTRY = (
    "INSERT INTO audit_entry (id, entity, kind, at, body, leaf_hash)"
    " VALUES (%s, %s, 'principal.created', '2026-12-01T12:00:00.000Z', %s, %s)"
)


def _tables(connection: Connection) -> None:
    """Make the same rows in a governed table and in one without triggers."""
    connection.execute("CREATE TABLE bench_plain (LIKE principal INCLUDING ALL)")
    connection.execute("CREATE TABLE bench_document (digest text PRIMARY KEY, body bytea)")
    connection.execute("CREATE TABLE bench_chain (n bigint PRIMARY KEY, link bytea, body bytea)")
    connection.execute("CREATE TABLE bench_head (id int PRIMARY KEY, n bigint, link bytea)")
    connection.execute("INSERT INTO bench_head VALUES (1, 0, '')")
    with connection.transaction():
        for number in range(_ROWS):
            row, (body,) = str(number), entries(number, 1)
            connection.execute(_ENTRY, (row, f"principal:{row}", body, leaf_hash(body)))
            for table in ("principal", "bench_plain"):
                connection.execute(
                    f"INSERT INTO {table} (id, version, entry_id, kind, name, roles, teams)"
                    " VALUES (%s, 1, %s, 'service', 'bench', '[]', '[]')",
                    (row, row),
                )


def _change(connection: Connection, table: str) -> tuple[str, str, bytes]:
    """Do what every way does: read who asks, keep a document, change one row."""
    key, row = secrets.token_hex(13), str(random.randrange(_ROWS))
    (body,) = entries(random.getrandbits(80), 1)
    connection.execute(_READ.format(table), (str(random.randrange(_ROWS)),))
    connection.execute(_KEEP, (key, body))
    connection.execute(_CHANGE.format(table), (key, row))
    return key, row, body


def _plain(connection: Connection) -> None:
    with connection.transaction():
        _change(connection, "bench_plain")


def _with_entry(connection: Connection) -> None:
    with connection.transaction():
        key, row, body = _change(connection, "principal")
        connection.execute(_ENTRY, (key, f"principal:{row}", body, leaf_hash(body)))


def _chain(connection: Connection) -> None:
    with connection.transaction():
        _, _, body = _change(connection, "bench_plain")
        head = connection.execute("SELECT n, link FROM bench_head FOR UPDATE").fetchone()
        number, link = head[0] + 1, hashlib.sha256(bytes(head[1]) + body).digest()
        connection.execute("INSERT INTO bench_chain VALUES (%s, %s, %s)", (number, link, body))
        connection.execute("UPDATE bench_head SET n = %s, link = %s", (number, link))


_WAYS: dict[str, Callable[[Connection], None]] = {
    "plain": _plain,
    "with their entry": _with_entry,
    "chain with one head row": _chain,
}


def _sequenced(url: str, arguments: argparse.Namespace) -> Iterator[Row]:
    """Give all entries of the load their index, and publish them."""
    with tempfile.TemporaryDirectory() as folder:
        signer = Ed25519Signer.generate("bench.example/log")
        ledger = Ledger(
            engine=create_engine(url),
            objects=FileObjects([Path(folder)]),
            prefix=Path(folder, "log").as_uri(),
            origin=signer.name,
            signers=[signer],
            guard=Guard(Path(folder, "guard.json")),
            clock=lambda: datetime.now(UTC),
        )
        start = time.perf_counter()
        count = ledger.sequence()
        yield Row(
            "sequencer, PostgreSQL",
            per_s=count / (time.perf_counter() - start),
            more=f"{count:,} entries",
        )
        start = time.perf_counter()
        ledger.publish()
        yield Row(
            "publisher: tiles synced to files, and signed",
            per_s=count / (time.perf_counter() - start),
        )
