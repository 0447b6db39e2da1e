"""A witness of our own, and the publisher that asks it: nobody is taken back, liars are named."""

import base64
import contextlib
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
import sqlalchemy.exc
from fastapi import FastAPI, Request, Response
from loopback import answering
from sqlalchemy import text

from audit.event import EventKind
from audit.keys import ED25519_COSIGNATURE, Ed25519Signer, VerifyKey
from audit.merkle import leaf_hash, prove_consistency, root
from audit.note import (
    Checkpoint,
    cosign,
    open_note,
    sign_checkpoint,
    split_note,
)
from audit.policy import WitnessPolicyError, evaluate_policy, parse_policy
from audit.witnessing import SIZE_TYPE, parse_request, write_request
from service import cli, exports
from service.clock import system_clock
from service.installation import build
from service.ledger import RolledBackError
from service.problems import Unavailable
from service.recovering import recover
from service.transaction import SYSTEM
from service.witness.app import create_app
from service.witness.cosigning import Witness, WitnessError
from service.witness.storage import Storage
from service.witnesses import QuorumError, load_witnesses

ORIGIN = "log.example.org/log"
LOG = Ed25519Signer.from_seed(ORIGIN, b"\xa0" * 32)
LEAVES = [leaf_hash(str(n).encode()) for n in range(300)]
NAME_HASH = hashlib.sha256(ORIGIN.encode()).hexdigest()


def tree(size, leaves=LEAVES):
    return sign_checkpoint(Checkpoint(ORIGIN, size, root(leaves[:size])), [LOG])


def asking(old, size, leaves=LEAVES):
    proof = prove_consistency(leaves[:size], old) if 0 < old < size else []
    return write_request(old, proof, tree(size, leaves))


@pytest.fixture
def make_witness(tmp_path):
    opened = []

    def make(name="w.example.net", *, vkeys=(LOG.vkey,)):
        witness = Witness(tmp_path / name, name, system_clock)
        for vkey in vkeys:
            witness.watch(vkey)
        opened.append(witness)
        return witness

    yield make
    for witness in opened:
        witness.close()


@pytest.fixture
def witness(make_witness):
    return make_witness()


class TestAWitness:
    def test_cosigns_with_both_keys_and_gives_the_note_to_monitors(self, witness):
        assert witness.add_checkpoint(asking(0, 5)).status == 200
        answer = witness.add_checkpoint(asking(5, 9))

        note = witness.note(NAME_HASH)
        keys = [VerifyKey.parse(vkey) for vkey in witness.vkeys]

        assert note == tree(9) + answer.body
        assert [line.key for line in open_note(note, keys).verified] == keys
        assert witness.note("0" * 64) is None

    def test_leaves_lines_of_strangers_out_of_what_monitors_get(self, witness):
        crowd = b"".join(b"\xe2\x80\x94 x%d AAAAAAA=\n" % n for n in range(98))
        body = write_request(0, [], tree(5) + crowd)

        answer = witness.add_checkpoint(body)

        assert answer.status == 200
        assert witness.note(NAME_HASH) == tree(5) + answer.body

    def test_remembers_across_a_restart_and_keeps_its_keys(self, make_witness):
        first = make_witness()
        first.add_checkpoint(asking(0, 9))
        again = make_witness()

        assert again.vkeys == first.vkeys
        assert again.add_checkpoint(asking(0, 5)).body == b"9\n"
        assert again.add_checkpoint(asking(9, 12)).status == 200

    def test_follows_its_list_of_logs_while_it_runs(self, make_witness):
        witness = make_witness(vkeys=())

        assert witness.add_checkpoint(asking(0, 5)).status == 404
        assert witness.watch(LOG.vkey)
        assert not witness.watch(LOG.vkey)
        assert witness.add_checkpoint(asking(0, 5)).status == 200

    def test_keeps_its_name_and_needs_one(self, tmp_path, make_witness):
        make_witness("w.example.net")

        with pytest.raises(WitnessError, match=r"named 'w\.example\.net'"):
            Witness(tmp_path / "w.example.net", "other.example.net", system_clock)
        with pytest.raises(WitnessError, match="--name"):
            Witness(tmp_path / "new", None, system_clock)
        with pytest.raises(WitnessError, match="white space"):
            Witness(tmp_path / "new", "two words", system_clock)

    @pytest.mark.parametrize("line", ["nonsense", "", LOG.vkey[:-4], "a+b+c"])
    def test_trusts_nothing_that_is_no_key_of_a_log(self, witness, line):
        with pytest.raises(WitnessError, match="verifier key"):
            witness.watch(line)

    def test_trusts_no_witness_as_a_log(self, witness):
        with pytest.raises(WitnessError, match="0x01 or 0x06"):
            witness.watch(witness.vkeys[0])

    def test_keeps_its_key_to_its_owner(self, tmp_path, witness):
        assert (tmp_path / "w.example.net" / "witness.pem").stat().st_mode & 0o077 == 0

    def test_is_not_taken_back_by_whoever_writes_to_its_file(self, tmp_path, witness):
        witness.add_checkpoint(asking(0, 9))
        storage = Storage(tmp_path / "w.example.net" / "witness.db")
        smaller = Checkpoint(ORIGIN, 5, root(LEAVES[:5]))
        forked = Checkpoint(ORIGIN, 9, bytes(32))
        attempts = [
            lambda memory: memory.keep(smaller, b"", cosigned_at=1),
            lambda memory: memory.keep(forked, b"", cosigned_at=1),
            lambda memory: memory.connection.execute(text("DELETE FROM witnessed")),
            lambda memory: memory.connection.execute(
                text("INSERT OR REPLACE INTO witnessed SELECT origin, origin_sha256, 1, root, note,"
                     " cosigned_at FROM witnessed")
            ),
        ]  # fmt: skip

        for attempt in attempts:
            with pytest.raises(sqlalchemy.exc.IntegrityError), storage.exclusive() as memory:
                attempt(memory)

        storage.close()
        assert witness.remembered()[0].checkpoint.size == 9


def test_requests_that_race_never_take_the_witness_back(make_witness):
    """Two openings of one folder stand for two processes; each has many threads."""
    witnesses = [make_witness(), make_witness()]
    witnesses[0].add_checkpoint(asking(0, 1))
    bodies = {(old, size): asking(old, size) for old in range(1, 12) for size in range(old, 12)}
    fork = [*LEAVES[:1], leaf_hash(b"forged"), *LEAVES[2:]]
    forked = [asking(1, size, fork) for size in range(2, 12)]
    answers, seen, errors = [], [], []
    start = threading.Barrier(8)

    def race(number):
        mine = witnesses[number % 2]
        start.wait()
        try:
            for turn in range(25):
                last = mine.remembered()[0].checkpoint.size
                seen.append((number, last))
                # Some are honest, some old by now, some of another history.
                size = min(last + 1 + (number + turn) % 3, 11)
                body = forked[(number + turn) % 10] if turn % 5 == 4 else bodies[last, size]
                answer = mine.add_checkpoint(body)
                answers.append((answer.status, answer.store))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=race, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not errors
    for number in range(8):
        sizes = [size for who, size in seen if who == number]
        assert sizes == sorted(sizes)
    cosigned = [store for status, store in answers if status == 200]
    roots = {}
    for store in cosigned:  # one history only, whichever of the two it became
        assert roots.setdefault(store.size, store.root) == store.root
    histories = [all(roots[n] == root(leaves[:n]) for n in roots) for leaves in (LEAVES, fork)]
    assert any(histories)
    assert max(roots) == witnesses[0].remembered()[0].checkpoint.size
    assert {status for status, _ in answers} <= {200, 409, 422}
    assert 409 in {status for status, _ in answers}


def test_of_two_equal_starts_with_two_histories_exactly_one_wins(make_witness):
    for turn in range(20):
        witness = make_witness(f"w{turn}.example.net")
        fork = [leaf_hash(b"forged"), *LEAVES[1:]]
        start, statuses = threading.Barrier(2), []

        def ask(leaves, witness=witness, start=start, statuses=statuses):
            body = asking(0, 7, leaves)
            start.wait()
            statuses.append(witness.add_checkpoint(body).status)

        threads = [threading.Thread(target=ask, args=(each,)) for each in (LEAVES, fork)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(statuses) == [200, 409]


class TestOverHttp:
    def test_statuses_types_and_bodies_are_the_protocols(self, witness):
        with answering(create_app(witness)) as url, httpx.Client(base_url=url) as http:
            post = lambda body: http.post("/add-checkpoint", content=body)  # noqa: E731
            first, conflict = post(asking(0, 5)), post(asking(0, 9))
            refused = [post(b"hello"), post(b"x" * 1_200_000), post(asking(5, 9, LEAVES[1:]))]
            monitored = http.get(f"/{NAME_HASH}/checkpoint")

            assert first.status_code == 200
            assert monitored.content == tree(5) + first.content
            assert (conflict.status_code, conflict.text) == (409, "5\n")
            assert conflict.headers["content-type"] == SIZE_TYPE
            assert [answer.status_code for answer in refused] == [400, 400, 422]
            assert http.get(f"/{'0' * 64}/checkpoint").status_code == 404
            assert http.get("/add-checkpoint").status_code in {404, 405}
            assert http.get("/healthz").text == "ok\n"
            assert http.get("/docs").status_code == 404


# --- the process itself


DIES = """
import os, signal, sys
from pathlib import Path
import uvicorn
from service.clock import system_clock
from service.witness.app import create_app
from service.witness.cosigning import Witness

class Dying(Witness):
    def add_checkpoint(self, body):
        answer = super().add_checkpoint(body)
        if answer.status == 200:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

witness = Dying(Path(sys.argv[1]), None, system_clock)
uvicorn.run(create_app(witness), port=int(sys.argv[2]), log_config=None)
"""


def free_port():
    with closing(socket.socket()) as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@contextmanager
def process(*command, url):
    started = subprocess.Popen(
        [sys.executable, *command],
        cwd=Path(cli.__file__).parents[1],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 60
        while True:
            assert time.monotonic() < deadline, "the witness does not answer"
            assert started.poll() is None, "the witness ended"
            try:
                if httpx.get(f"{url}/healthz", trust_env=False).status_code == 200:
                    break
            except httpx.TransportError:
                time.sleep(0.05)
        yield started
    finally:
        started.kill()
        started.wait()


def test_killed_after_it_persisted_and_before_it_answered_a_retry_gets_the_cosignature(
    tmp_path, make_witness
):
    witness = make_witness()
    witness.add_checkpoint(asking(0, 5))
    folder, port = tmp_path / "w.example.net", free_port()
    url = f"http://127.0.0.1:{port}"
    with process("-c", DIES, str(folder), str(port), url=url) as dying:
        with pytest.raises(httpx.TransportError):
            httpx.post(f"{url}/add-checkpoint", content=asking(5, 9), trust_env=False)
        assert dying.wait(10) == -signal.SIGKILL

    command = ("-m", "service.cli", "witness", "serve", "--data", str(folder), "--port", str(port))
    with process(*command, url=url) as alive:
        again = httpx.post(f"{url}/add-checkpoint", content=asking(5, 9), trust_env=False)
        told = int(again.text)
        retried = httpx.post(f"{url}/add-checkpoint", content=asking(told, 9), trust_env=False)
        alive.terminate()
        ended = alive.wait(20)

    assert (again.status_code, told, retried.status_code) == (409, 9, 200)
    assert open_note(tree(9) + retried.content, [witness.signers[0].key]).verified
    assert ended in {0, -signal.SIGTERM}


def test_the_publisher_gets_over_a_witness_that_was_killed_before_it_answered(
    lone_world, make_witness, tmp_path
):
    ledger = lone_world.wired.ledger
    witness = make_witness(vkeys=ledger.vkeys)
    folder, port = tmp_path / "w.example.net", free_port()
    url = f"http://127.0.0.1:{port}"
    policy = policy_file(tmp_path, [(witness, url)], "all")
    asked = replace(ledger, witnesses=load_witnesses(policy, ledger.origin, ledger.vkeys))
    ledger.sequence()
    with process("-c", DIES, str(folder), str(port), url=url), pytest.raises(QuorumError):
        asked.publish()
    with answering(
        create_app(witness),
    ) as living:
        policy = policy_file(tmp_path, [(witness, living)], "all")
        asked = replace(ledger, witnesses=load_witnesses(policy, ledger.origin, ledger.vkeys))

        size = asked.publish()

    assert witness.remembered()[0].checkpoint.size == size
    assert cosigners(asked.latest().note, witness) == 2


# --- the publisher asks


def policy_file(folder, witnesses, quorum, *, logs=()):
    """Write a policy: one group of groups, each witness with both its keys."""
    lines = [f"log {vkey}" for vkey in logs]
    for n, (witness, url) in enumerate(witnesses):
        lines += [f"witness w{n}-{m} {vkey} {url}/" for m, vkey in enumerate(witness.vkeys)]
        lines.append(f"group w{n} all " + " ".join(f"w{n}-{m}" for m in range(len(witness.vkeys))))
    if witnesses:
        lines.append(f"group g {quorum} " + " ".join(f"w{n}" for n in range(len(witnesses))))
    lines.append("quorum g" if witnesses and quorum != 0 else "quorum none")
    if quorum == 0:
        lines = [line for line in lines if not line.startswith("group g ")]
    path = folder / "policy.txt"
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def cosigners(note, *witnesses):
    keys = [VerifyKey.parse(vkey) for each in witnesses for vkey in each.vkeys]
    signed = {(line.name, line.key_id) for line in split_note(note)[1]}
    here = [key for key in keys if (key.name, key.id) in signed]
    return len(open_note(note, here).verified) if here else 0


def asking_ledger(ledger, path, **how):
    witnesses = load_witnesses(path, ledger.origin, ledger.vkeys)
    return replace(ledger, witnesses=replace(witnesses, **how))


@contextmanager
def serving_all(*apps):
    with ExitStack() as stack:
        yield [stack.enter_context(answering(app)) for app in apps]


def more(world):
    with world.wired.transactions.write() as tx:
        tx.record(
            EventKind.REQUEST_REFUSED,
            "request:req_1",
            actor=SYSTEM,
            data={"problem": "test", "route": "/x"},
        )
    world.wired.ledger.sequence()


class Liar:
    """A witness that answers as a test says."""

    def __init__(self, answer):
        self.vkeys = [SLIPPERY.vkey]
        self.app, self.asked = FastAPI(), 0

        @self.app.post("/add-checkpoint")
        async def add_checkpoint(request: Request) -> Response:
            self.asked += 1
            return answer(parse_request(await request.body()))


SLIPPERY = Ed25519Signer.from_seed("slippery.example.net", b"\xd0" * 32, kind=ED25519_COSIGNATURE)


def untimed(request):
    signature = SLIPPERY.sign(f"cosignature/v1\ntime 0\n{request.text}".encode())
    line = base64.b64encode(SLIPPERY.key.id + bytes(8) + signature).decode()
    return Response(f"\u2014 {SLIPPERY.name} {line}\n")


def other_text(request, origin=None, size=None):
    now = request.checkpoint
    other = f"{origin or now.origin}\n{size or now.size}\n" + request.text.split("\n", 2)[2]
    return Response(cosign(other, SLIPPERY, 1_796_000_000))


def slowly(_request):
    time.sleep(3)
    return Response("late")


LIES = {
    "a wrong key": lambda r: Response(
        cosign(r.text, Ed25519Signer.generate(SLIPPERY.name, kind=ED25519_COSIGNATURE), 5)
    ),
    "no time": untimed,
    "another origin": lambda r: other_text(r, origin="other.example.org/log"),
    "another size": lambda r: other_text(r, size=r.checkpoint.size + 1),
    "nothing": lambda _: Response(b""),
    "no lines": lambda _: Response(b"thank you\n"),
    "a second note": lambda r: Response(r.text + "\n" + cosign(r.text, SLIPPERY, 5)),
    "the log's own lines": lambda r: Response(r.note.split(b"\n\n")[1]),
    "a huge body": lambda _: Response(b"x" * 200_000),
    "octets": lambda _: Response(bytes(range(256))),
    "403": lambda _: Response("who are you\n", 403),
    "404": lambda _: Response("unknown log\n", 404),
    "500": lambda _: Response("oops", 500),
    "a redirect": lambda _: Response("", 307, headers={"Location": "http://127.0.0.1:9/"}),
    "409 without a type": lambda _: Response("0\n", 409),
    "409 with words": lambda _: Response("many\n", 409, media_type=SIZE_TYPE),
    "409 with a sign": lambda _: Response("+1\n", 409, media_type=SIZE_TYPE),
    "409 for ever": lambda r: Response(
        f"{r.checkpoint.size - (r.old_size == r.checkpoint.size)}\n", 409, media_type=SIZE_TYPE
    ),
}


class TestThePublisher:
    @pytest.mark.parametrize("lie", LIES)
    def test_ignores_and_names_a_witness_that_answers(
        self, lie, lone_world, make_witness, tmp_path, operator_log
    ):
        ledger, liar = lone_world.wired.ledger, Liar(LIES[lie])
        honest = make_witness(vkeys=ledger.vkeys)
        ledger.sequence()
        with serving_all(create_app(honest), liar.app) as (url, lying):
            path = policy_file(tmp_path, [(honest, url), (liar, lying)], "any")

            assert asking_ledger(ledger, path).publish()

        note = ledger.latest().note
        named = [line for line in operator_log if line["event"] == "witness.ignored"]
        assert liar.asked
        assert named
        assert {line["witness"] for line in named} == {"w1-0"}
        assert cosigners(note, honest) == 2
        assert SLIPPERY.name not in note.decode()
        assert ledger.read("checkpoint") == note
        assert evaluate_policy(parse_policy(path.read_bytes()), note, log_keys(ledger)).is_met

    def test_does_not_publish_what_only_a_liar_cosigned(self, lone_world, tmp_path):
        ledger, liar = lone_world.wired.ledger, Liar(untimed)
        ledger.sequence()
        with serving_all(liar.app) as (lying,):
            asked = asking_ledger(ledger, policy_file(tmp_path, [(liar, lying)], "any"))

            with pytest.raises(QuorumError, match="w0-0"):
                asked.publish()

        assert ledger.latest() is None

    def test_tells_who_exports_to_come_back_while_the_quorum_is_away(
        self, lone_world, make_witness, tmp_path
    ):
        ledger = lone_world.wired.ledger
        away = [(make_witness(vkeys=ledger.vkeys), f"http://127.0.0.1:{free_port()}")]
        asked = asking_ledger(ledger, policy_file(tmp_path, away, "all"))

        with pytest.raises(Unavailable, match="witness policy is not met"):
            exports._published(asked)

    def test_logs_a_witness_that_is_away_and_publishes_with_the_others(
        self, lone_world, make_witness, tmp_path, operator_log
    ):
        ledger = lone_world.wired.ledger
        here, away = (make_witness(name, vkeys=ledger.vkeys) for name in ("a", "b"))
        ledger.sequence()
        with serving_all(create_app(here)) as (url,):
            gone = f"http://127.0.0.1:{free_port()}"
            path = policy_file(tmp_path, [(here, url), (away, gone)], "any")

            assert asking_ledger(ledger, path).publish()

        (line,) = [line for line in operator_log if line["event"] == "witness.away"]
        assert (line["witness"], line["url"]) == ("w1-0, w1-1", gone)
        assert (cosigners(ledger.latest().note, here), cosigners(ledger.latest().note, away)) == (
            2,
            0,
        )

    def test_waits_for_a_quorum_and_goes_on_when_it_is_back(
        self, lone_world, make_witness, tmp_path
    ):
        ledger = lone_world.wired.ledger
        witness = make_witness(vkeys=ledger.vkeys)
        ledger.sequence()
        away = asking_ledger(
            ledger, policy_file(tmp_path, [(witness, f"http://127.0.0.1:{free_port()}")], "all")
        )
        with pytest.raises(QuorumError, match="asked again"):
            away.publish()
        assert ledger.latest() is None
        more(lone_world)  # entries go on being written and sequenced

        with serving_all(create_app(witness)) as (url,):
            back = asking_ledger(ledger, policy_file(tmp_path, [(witness, url)], "all"))
            size = back.publish()

        assert size == witness.remembered()[0].checkpoint.size
        assert cosigners(ledger.latest().note, witness) == 2

    def test_asks_all_at_the_same_time_and_waits_for_nobody_beyond_the_deadline(
        self, lone_world, make_witness, tmp_path, operator_log
    ):
        ledger = lone_world.wired.ledger
        honest, slow = make_witness(vkeys=ledger.vkeys), [Liar(slowly) for _ in range(2)]
        for n, each in enumerate(slow):
            each.vkeys = [witness_key(n)]
        ledger.sequence()
        with serving_all(create_app(honest), *(each.app for each in slow)) as urls:
            path = policy_file(tmp_path, list(zip([honest, *slow], urls, strict=True)), "any")
            asked = asking_ledger(ledger, path, deadline_s=0.7)
            began = time.monotonic()

            assert asked.publish()

            took = time.monotonic() - began
        assert took < 2.5  # one deadline, not one for each
        assert sum(line["event"] == "witness.away" for line in operator_log) == 2

    def test_does_not_wait_for_an_answer_that_drips(
        self, lone_world, make_witness, tmp_path, operator_log
    ):
        ledger, honest = lone_world.wired.ledger, make_witness(vkeys=lone_world.wired.ledger.vkeys)
        dripping = Liar(slowly)
        ledger.sequence()
        with serving_all(create_app(honest)) as (url,), drips() as other:
            path = policy_file(tmp_path, [(honest, url), (dripping, other)], "any")
            began = time.monotonic()

            assert asking_ledger(ledger, path, deadline_s=0.7).publish()

            took = time.monotonic() - began
        assert took < 2.5
        assert "witness.away" in {line["event"] for line in operator_log}

    def test_tells_each_witness_how_far_it_is_and_catches_it_up(
        self, lone_world, make_witness, tmp_path
    ):
        ledger = lone_world.wired.ledger
        early, late = (make_witness(name, vkeys=ledger.vkeys) for name in ("a", "b"))
        ledger.sequence()
        with serving_all(create_app(early), create_app(late)) as (first, second):
            only = asking_ledger(ledger, policy_file(tmp_path, [(early, first)], "all"))
            assert only.publish()
            for _ in range(3):
                more(lone_world)
                assert only.publish()
            both = asking_ledger(
                ledger, policy_file(tmp_path, [(early, first), (late, second)], "all")
            )
            more(lone_world)

            size = both.publish()

        assert [w.remembered()[0].checkpoint.size for w in (early, late)] == [size, size]
        assert cosigners(ledger.latest().note, early, late) == 4

    def test_publishes_after_a_crash_between_cosigning_and_publishing(
        self, lone_world, make_witness, tmp_path
    ):
        ledger = lone_world.wired.ledger
        witness = make_witness(vkeys=ledger.vkeys)
        ledger.sequence()
        with serving_all(create_app(witness)) as (url,):
            path = policy_file(tmp_path, [(witness, url)], "all")
            assert asking_ledger(ledger, path).publish()
            more(lone_world)
            crashing = replace(asking_ledger(ledger, path), objects=Unwritable(ledger.objects))
            with pytest.raises(OSError, match="disk"):
                crashing.publish()
            more(lone_world)

            size = asking_ledger(ledger, path).publish()

        assert size == witness.remembered()[0].checkpoint.size
        assert ledger.latest().size == size


class Unwritable:
    """An object store that loses its disk when the checkpoint is written."""

    def __init__(self, inner):
        self._inner = inner

    def put(self, uri, data):
        raise OSError("the disk is gone")

    def __getattr__(self, name):
        return getattr(self._inner, name)


@contextmanager
def drips():
    """Answer every connection with a header line that never ends, an octet at a time."""
    done = threading.Event()

    def drip(connection):
        with closing(connection), contextlib.suppress(OSError):
            connection.sendall(b"HTTP/1.1 200 OK\r\nX-Slow: ")
            while not done.wait(0.1):
                connection.sendall(b"x")

    def accept(listener):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=drip, args=(connection,), daemon=True).start()

    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        threading.Thread(target=accept, args=(listener,), daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        done.set()


def witness_key(n):
    return Ed25519Signer.from_seed(f"s{n}", bytes([n, 7]) * 16, kind=ED25519_COSIGNATURE).vkey


def log_keys(ledger):
    return [VerifyKey.parse(vkey) for vkey in ledger.vkeys]


class TestARestoredMachine:
    """Database, guard and published log are all of last week; only the witness is not."""

    @pytest.fixture
    def restored(self, lone_world, make_witness, tmp_path):
        """Give the log of last week, and the checkpoint that was published since."""
        ledger = lone_world.wired.ledger
        witness = make_witness(vkeys=ledger.vkeys)
        ledger.sequence()
        with serving_all(create_app(witness)) as (url,):
            path = policy_file(tmp_path, [(witness, url)], 0)
            assert asking_ledger(ledger, path).publish()
            guard, published = ledger.guard.path.read_bytes(), ledger.read("checkpoint")
            size = ledger.latest().size
            for _ in range(3):
                more(lone_world)
            assert asking_ledger(ledger, path).publish() == size + 3
            newest = ledger.read("checkpoint")
            lone_world.tamper("audit_entry", f"DELETE FROM audit_entry WHERE idx >= {size}")
            lone_world.tamper("log_head", f"UPDATE log_head SET size = {size}")
            lone_world.tamper("checkpoint", f"DELETE FROM checkpoint WHERE size > {size}")
            ledger.guard.path.write_bytes(guard)
            ledger.objects.put(f"{ledger.prefix}/checkpoint", published)
            yield lone_world, asking_ledger(ledger, path), size, newest

    def test_signs_nothing_and_says_which_witness_is_ahead(self, restored):
        world, ledger, size, _ = restored
        more(world)
        guard, published = ledger.guard.read(), ledger.read("checkpoint")

        for _ in range(2):
            with pytest.raises(RolledBackError, match=rf"cosigned {size + 3} entries"):
                ledger.publish()

        assert ledger.guard.read() == guard
        assert ledger.read("checkpoint") == published

    def test_does_not_grow_out_of_the_alarm(self, restored):
        world, ledger, size, _ = restored
        guard = ledger.guard.read()
        for _ in range(9):  # more than the witness has seen
            more(world)

        with pytest.raises(RolledBackError, match=rf"cosigned {size + 3} entries"):
            ledger.publish()

        assert ledger.guard.read() == guard

    def test_goes_on_once_the_lost_entries_are_back(self, restored):
        world, ledger, size, newest = restored
        more(world)
        with pytest.raises(RolledBackError):
            ledger.publish()
        # The operator finds the published log of last night, and takes back what came since.
        world.tamper("audit_entry", f"DELETE FROM audit_entry WHERE idx >= {size}")
        world.tamper("log_head", f"UPDATE log_head SET size = {size}")
        ledger.objects.put(f"{ledger.prefix}/checkpoint", newest)

        assert recover(ledger, world.wired.transactions).count == 3

        ledger.sequence()
        assert ledger.publish() == size + 4  # with the entry that says so


def test_a_larger_size_than_ours_stops_signing_whatever_the_quorum(lone_world, tmp_path):
    ledger = lone_world.wired.ledger
    liar = Liar(lambda _: Response("999\n", 409, media_type=SIZE_TYPE))
    ledger.sequence()
    with serving_all(liar.app) as (url,):
        asked = asking_ledger(ledger, policy_file(tmp_path, [(liar, url)], 0))

        with pytest.raises(RolledBackError, match="cosigned 999 entries"):
            asked.publish()
        signed = ledger.guard.read()
        more(lone_world)
        with pytest.raises(RolledBackError):
            asked.publish()

    assert ledger.guard.read() == signed
    assert ledger.latest() is None


# --- the policy file of an installation


def test_an_installation_asks_the_witnesses_that_its_policy_lists(
    lone_world, make_witness, tmp_path
):
    ledger = lone_world.wired.ledger
    witness = make_witness(vkeys=ledger.vkeys)
    with serving_all(create_app(witness)) as (url,):
        path = policy_file(tmp_path, [(witness, url)], "all")
        settings = lone_world.wired.settings.model_copy(update={"witness_policy": path})
        again = build(settings, clock=lone_world.clock)
        again.ledger.sequence()
        assert again.ledger.publish()
        again.database.dispose()

    assert cosigners(ledger.latest().note, witness) == 2


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (["quorum"], "one `quorum"),
        ([f"log {LOG.vkey}", "quorum none"], "lists other logs"),
        ([f"witness a {SLIPPERY.vkey}", "quorum a"], "no URL"),
        ([f"witness a {SLIPPERY.vkey} ftp://host/", "quorum a"], "http"),
        ([f"witness a {SLIPPERY.vkey} http://u:p@host/", "quorum a"], "http"),
        ([f"witness a {SLIPPERY.vkey} https://host/?x=1", "quorum a"], "http"),
        (["witness a OWN https://host/", "quorum a"], "the log itself"),
    ],
)
def test_a_policy_that_cannot_work_is_refused_when_it_is_read(tmp_path, lines, says):
    origin, own = "own.example.org/log", Ed25519Signer.generate("own.example.org/log")
    cosigner = Ed25519Signer.from_seed(origin, own.seed, kind=ED25519_COSIGNATURE).vkey
    path = tmp_path / "policy.txt"
    path.write_text("".join(f"{line}\n" for line in lines).replace("OWN", cosigner))

    with pytest.raises(WitnessPolicyError, match=says):
        load_witnesses(path, origin, [own.vkey])


# --- commands


def test_the_commands_make_a_witness_show_it_and_let_it_trust(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(os, "umask", lambda mask: mask)
    folder = ["--data", str(tmp_path / "w")]

    def run(*words):
        status = cli.main(["witness", *words, *folder, "--json"])
        said = capsys.readouterr()
        return status, json.loads(said.out) if said.out else said.err

    assert run("key")[0] == 2
    status, made = run("key", "--name", "w.example.net")
    assert status == 0
    assert [VerifyKey.parse(vkey).kind for vkey in made["vkeys"]] == [4, 6]
    assert run("trust", LOG.vkey) == (0, {"changed": True, "origins": [ORIGIN]})
    assert run("trust", LOG.vkey)[1]["changed"] is False
    assert run("trust", "nonsense")[0] == 2
    witness = Witness(tmp_path / "w", None, system_clock)
    witness.add_checkpoint(asking(0, 5))
    witness.close()
    (row,) = run("status")[1]["logs"]
    assert (row["origin"], row["keys"], row["size"]) == (ORIGIN, 1, 5)
    assert cli.main(["witness", "status", *folder]) == 0
    assert ORIGIN in capsys.readouterr().out
