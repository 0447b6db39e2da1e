"""An excerpt shows some entries, fixes all, says what it leaves out, and is never "verified"."""

import io
import json
import zipfile

import pytest

from audit.bundle import entry_line
from audit.canonical import canonical
from audit.container import ContainerWriter
from audit.event import EventKind, from_bytes
from audit.manifest import BundleError, parse_manifest
from audit.merkle import leaf_hash
from audit.report import Exit, Outcome, to_text
from audit.selection import Selection, SelectionError
from audit.verify import verify


@pytest.fixture
def entries(world):
    return world.entries(world.story())


@pytest.fixture
def excerpt(world, entries):
    """Return a function that writes an excerpt of the story."""

    def made(selection, **options):
        return world.export(entries, selection=selection, **options)

    return made


@pytest.fixture
def check(world, tmp_path):
    def run(data, **options):
        path = tmp_path / "excerpt.zip"
        path.write_bytes(data)
        return verify(path, [world.vkey], **options)

    return run


def members(data):
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def written(contents):
    out = io.BytesIO()
    writer = ContainerWriter(out)
    for name, content in contents.items():
        writer.add(name, [content])
    writer.close()
    return out.getvalue()


def outcomes(report):
    return {level.id: level.outcome for level in report.levels}


DECISIONS = Selection(kinds=frozenset({EventKind.GATE_DECIDED}))


def test_an_excerpt_shows_what_was_asked_for_and_fixes_the_rest(entries, excerpt, check):
    data = excerpt(DECISIONS)

    report = check(data)

    assert report.exit_code == Exit.INCOMPLETE, to_text(report)
    found = outcomes(report)
    assert {found[level] for level in ("L0", "L1", "L2", "L7")} == {Outcome.PASS}
    assert {found[level] for level in ("L6", "L9")} == {Outcome.NOT_CHECKED}
    shown = [json.loads(line) for line in members(data)["entries.ndjson"].splitlines()]
    decided = [n for n, entry in enumerate(entries) if b"gate.decided" in entry]
    assert [line["index"] for line in shown] == decided
    manifest = parse_manifest(members(data)["manifest.json"])
    assert manifest.excerpt.shown == len(decided) < len(entries)
    assert manifest.excerpt.selection == DECISIONS
    assert f"the {len(decided)} entries shown of {len(entries)}" in to_text(report)


def test_an_excerpt_holds_no_other_entry_and_no_document_of_one(entries, excerpt):
    data = excerpt(DECISIONS, documents={})

    content = b"".join(members(data).values())
    for entry in entries:
        assert (entry in content) == (from_bytes(entry).action == EventKind.GATE_DECIDED)
    assert not any(name.startswith("tile/entries") for name in members(data))


@pytest.mark.parametrize(
    ("selection", "holds"),
    [
        (Selection(first=3, end=7), lambda n, _: 3 <= n < 7),
        (Selection(end=0), lambda _n, _: False),
        (
            Selection(kinds=frozenset({"approval.given"})),
            lambda _n, e: e.action == "approval.given",
        ),
    ],
)
def test_what_is_shown_is_what_matches(entries, excerpt, selection, holds):
    lines = members(excerpt(selection))["entries.ndjson"].splitlines()

    expected = [n for n, entry in enumerate(entries) if holds(n, from_bytes(entry))]
    assert [json.loads(line)["index"] for line in lines] == expected


def test_every_condition_is_one_that_entries_must_hold(entries):
    for index, entry in enumerate(entries):
        event = from_bytes(entry)
        resource = event.resource.partition("@")[0]
        of_it = Selection(
            first=index,
            end=index + 1,
            since=event.at,
            kinds=frozenset({event.action}),
            resources=frozenset({resource}),
            actors=frozenset({event.actor.ref}),
        )
        assert of_it.matches(index, event)
        assert Selection.from_document(of_it.to_document()) == of_it
        for other in (
            Selection(first=index + 1),
            Selection(end=index),
            Selection(since="2999-01-01T00:00:00.000Z"),
            Selection(until=event.at),
            Selection(kinds=frozenset({"log.started", "job.cancelled"} - {event.action})),
            Selection(resources=frozenset({"job:other"})),
            Selection(actors=frozenset({"prn_other"})),
        ):
            assert not other.matches(index, event)
    assert Selection().is_everything


@pytest.mark.parametrize(
    "document",
    [
        [],
        {"more": 1},
        {"first": -1},
        {"first": True},
        {"end": "3"},
        {"since": "2026-11-30"},
        {"until": "2026-11-31T00:00:00.000Z"},
        {"kinds": ["job.eaten"]},
        {"kinds": "job.submitted"},
        {"resources": ["job:x@2"]},
        {"resources": ["no resource"]},
        {"actors": ["A. Perrin"]},
        {"actors": ["a"] * 1001},
    ],
)
def test_a_selection_that_says_nothing_clear_is_refused(document):
    with pytest.raises(SelectionError, match="selection: "):
        Selection.from_document(document)


class TestForged:
    """Whoever changes an excerpt is found out."""

    @pytest.fixture
    def parts(self, excerpt):
        return members(excerpt(DECISIONS))

    def test_every_byte_counts(self, excerpt, check):
        data = bytearray(excerpt(Selection(first=2, end=4), documents={}, verifier=b"#"))
        for position in range(0, len(data), 7):
            data[position] ^= 1 << position % 8
            assert check(bytes(data)).exit_code in (Exit.TAMPERED, Exit.MALFORMED, Exit.UNTRUSTED)
            data[position] ^= 1 << position % 8

    @pytest.mark.parametrize("name", ["entries.ndjson", "tile/0/000.p/20"])
    def test_a_member_that_is_cut_or_gone(self, parts, check, name):
        for changed in ({**parts, name: parts[name][:-1]}, {**parts, name: b""}):
            assert check(written(changed)).exit_code in (Exit.TAMPERED, Exit.MALFORMED)
        without = {other: content for other, content in parts.items() if other != name}
        assert check(written(without)).exit_code == Exit.MALFORMED

    def test_entries_swapped_doubled_or_invented(self, world, entries, parts, check):
        lines = parts["entries.ndjson"].splitlines(keepends=True)
        invented = canonical({**json.loads(entries[0]), "outcome": "denied"})
        for changed in (
            lines[::-1],
            [*lines, lines[-1]],
            lines[:-1],
            [entry_line(0, invented, leaf_hash(invented)), *lines],
            [lines[0].replace(b'"index":', b'"index": '), *lines[1:]],
            [entry_line(99, entries[0], leaf_hash(entries[0]))],
        ):
            report = check(written({**parts, "entries.ndjson": b"".join(changed)}))
            assert report.exit_code in (Exit.TAMPERED, Exit.MALFORMED)

    def test_an_entry_that_was_not_selected_is_no_part_of_it(self, world, entries, excerpt, check):
        """The exporter's own key signs a manifest whose selection the entries do not keep."""
        whole = Selection(first=0, end=5)
        data = members(world.export(entries, selection=whole))
        other = members(excerpt(Selection(first=0, end=4)))
        lie = written({**data, "manifest.json": other["manifest.json"]})

        assert check(lie).exit_code in (Exit.TAMPERED, Exit.MALFORMED)

    def test_an_excerpt_does_not_pass_as_the_whole(self, parts, check):
        document = json.loads(parts["manifest.json"])
        del document["selection"], document["counts"]["shown"]
        document |= {"format": "placet.manifest/1", "range": {"end": 20, "first": 0}}

        report = check(written({**parts, "manifest.json": canonical(document)}))

        assert report.exit_code == Exit.MALFORMED

    @pytest.mark.parametrize(
        "change",
        [{"selection": {"kinds": ["x"]}}, {"format": "placet.manifest/1"}, {"range": {}}],
    )
    def test_a_manifest_of_another_form_is_refused(self, parts, change):
        document = json.loads(parts["manifest.json"]) | change

        with pytest.raises(BundleError):
            parse_manifest(canonical(document))
