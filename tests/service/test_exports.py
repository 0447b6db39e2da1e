"""A bundle verifies on its own, is complete, and tells nobody's secrets."""

import io
import subprocess
import sys
import threading
import zipfile
from dataclasses import replace

import pytest
from sqlmodel import select
from world import NAMES

from audit.keys import Ed25519Signer
from audit.verify import verify
from service.exports import export
from service.log_tables import Document
from service.principals import Caller, Role
from service.problems import Forbidden
from service.worker import Worker

REASON = "Hannelore Zwiebelfisch fell ill and asked for it"


@pytest.fixture
def story(world):
    """Live through one of everything that people do."""
    refused = world.submit()
    world.post(
        f"/v1/jobs/{refused['id']}/approvals",
        "omar",
        {"outcome": "refused", "reason": REASON},
        seen=refused["version"],
    )
    world.submit(budget_cents=0)
    world.ask("POST", "/v1/jobs", "vera", world.job_body())
    world.active_deployment()
    return world


def bundle_of(world, who="vera"):
    made = world.post("/v1/exports", who, {"recipient": "auditor"})
    content = world.ask("GET", made["bundle"], who).content
    path = world.folder / "bundle.zip"
    path.write_bytes(content)
    return made, path


def test_a_bundle_verifies_and_holds_every_document(story):
    made, path = bundle_of(story)

    report = verify(path, story.wired.ledger.vkeys)

    assert report.exit_code == 0, report
    outcomes = {level.id: str(level.outcome) for level in report.levels}
    assert {outcomes[level] for level in ("L0", "L1", "L2", "L6", "L7")} == {"pass"}
    assert made["num_entries"] == len(story.entries())
    assert story.kinds()[-1] == "evidence.exported"


def test_the_verifier_inside_the_bundle_says_the_same(story):
    _, path = bundle_of(story)
    with zipfile.ZipFile(path) as bundle:
        program = story.folder / "placet_verify.py"
        program.write_bytes(bundle.read("placet_verify.py"))

    done = subprocess.run(
        [sys.executable, "-I", str(program), str(path), "--vkey", story.wired.ledger.vkeys[0]],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert done.returncode == 0, done.stdout + done.stderr


def permits(world):
    with world.wired.transactions.read() as session:
        rows = select(Document.body).where(Document.media_type == "application/jwt")
        return set(session.exec(rows))


def test_a_bundle_names_nobody_and_holds_no_right_that_can_still_be_used(story):
    spent = permits(story)
    story.running_job()
    usable = permits(story) - spent
    _, path = bundle_of(story)
    forbidden = [
        REASON.encode(),
        b"Zwiebelfisch",
        *(name.encode() for name in NAMES.values()),
        *(name.split()[1].encode() for name in NAMES.values()),
        *(token.encode() for token in story.tokens.values()),
        *usable,
        *(permit.split(b".")[2] for permit in usable),
    ]
    assert (len(spent), len(usable)) == (1, 1)

    with zipfile.ZipFile(path) as bundle:
        members = {name: bundle.read(name) for name in bundle.namelist()}
    leaks = [
        (name, secret)
        for name, body in {**members, "itself": path.read_bytes()}.items()
        for secret in forbidden
        if secret in body
    ]

    assert not leaks
    # The permit that is left out is stated, unless no entry names it.
    assert verify(path, story.wired.ledger.vkeys).exit_code in {0, 4}


def test_a_changed_byte_in_any_member_is_noticed(story):
    _, path = bundle_of(story)
    original = path.read_bytes()
    with zipfile.ZipFile(io.BytesIO(original)) as bundle:
        names = bundle.namelist()
    chosen = ["entries.ndjson", "manifest.json", "checkpoint", "placet_verify.py"]
    chosen += [name for name in names if name.startswith(("tile/", "objects/"))][:3]

    for name in chosen:
        changed = io.BytesIO()
        with (
            zipfile.ZipFile(io.BytesIO(original)) as bundle,
            zipfile.ZipFile(changed, "w", zipfile.ZIP_DEFLATED) as out,
        ):
            for info in bundle.infolist():
                body = bytearray(bundle.read(info.filename))
                if info.filename == name:
                    body[len(body) // 2] ^= 1
                out.writestr(info, bytes(body))
        path.write_bytes(changed.getvalue())
        assert verify(path, story.wired.ledger.vkeys).exit_code != 0, name


def test_a_document_missing_from_the_database_is_stated(story):
    story.tamper(
        "document",
        "DELETE FROM document WHERE digest = :d",
        d=story.get("/v1/jobs", "vera")["items"][0]["spec_digest"],
    )
    _, path = bundle_of(story)

    assert verify(path, story.wired.ledger.vkeys).exit_code == 4


def test_the_wrong_key_is_not_trusted(story):
    _, path = bundle_of(story)
    stranger = Ed25519Signer.generate(story.wired.settings.origin)

    assert verify(path, [stranger.vkey]).exit_code == 3
    assert verify(path, []).exit_code == 3


@pytest.mark.parametrize("who", ["ada", "eve"])
def test_a_submitter_gets_no_bundle(world, who):
    assert world.ask("POST", "/v1/exports", who, {"recipient": "auditor"}).status == 403
    made = world.post("/v1/exports", "vera", {"recipient": "authority"})
    for path in (made["bundle"], f"/v1/exports/{made['id']}"):
        assert world.ask("GET", path, who).status == 403
    assert world.get(f"/v1/exports/{made['id']}", "olaf")["created_by"] == world.ids["vera"]


@pytest.mark.parametrize("export_id", ["exp_x", "..%2f..%2fplacet.db", "%00", "."])
def test_no_other_file_can_be_downloaded(world, export_id):
    answer = world.ask("GET", f"/v1/exports/{export_id}/bundle", "vera")

    assert answer.status in {400, 404}


def test_an_export_beside_a_running_worker_holds_its_own_entry(world):
    stop = threading.Event()

    def publish():
        worker = Worker(world.wired)
        while not stop.is_set():
            worker.publish()

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        for _ in range(3):
            made, path = bundle_of(world)
            report = verify(path, world.wired.ledger.vkeys)
            assert report.exit_code == 0, report
            with zipfile.ZipFile(path) as bundle:
                assert made["entry"].encode() in bundle.read("entries.ndjson")
    finally:
        stop.set()
        thread.join()


def test_a_caller_without_the_role_is_refused_before_anything_is_written(lone_world):
    caller = Caller("prn_x", "human", frozenset({Role.SUBMITTER}), frozenset())
    before = lone_world.counts()

    with pytest.raises(Forbidden):
        export(
            lone_world.wired.transactions,
            replace(lone_world.wired.ledger),
            caller,
            recipient="auditor",
            folder=lone_world.folder / "exports",
            clock=lone_world.clock,
        )
    assert lone_world.counts() == before
    assert not (lone_world.folder / "exports").exists()
