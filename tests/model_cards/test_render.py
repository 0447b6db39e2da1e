"""Pages and README: right words, accessible structure, golden bytes."""

import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest

from audit.canonical import canonical
from model_cards import card, document, render, transparency
from model_cards.catalogue import LANGUAGES, catalogue
from model_cards.document import DocumentError
from model_cards.evidence import Evidence
from model_cards.language import LanguageError, words

VOID = {"meta", "br", "hr", "img", "link", "input"}


class Outline(HTMLParser):
    """Checks nesting, and keeps tags, attributes and ids."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.ids, self.text = [], [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.ids += [value for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def outline(page):
    parser = Outline()
    parser.feed(page)
    parser.close()
    assert parser.open == []
    return parser


def pages(card_bytes, record_bytes, language):
    return (
        render.card_html(card_bytes, language),
        render.transparency_html(record_bytes, language),
    )


def outputs(card_bytes, record_bytes):
    return {
        "card.json": card_bytes.decode(),
        "transparency.json": record_bytes.decode(),
        "card.md": render.card_markdown(card_bytes),
        "card.html": render.card_html(card_bytes),
        "card.de.html": render.card_html(card_bytes, "de"),
        "transparency.html": render.transparency_html(record_bytes),
        "transparency.fr.html": render.transparency_html(record_bytes, "fr"),
        "empty.card.pl.html": render.card_html(card.build(Evidence.of({})), "pl"),
    }


def test_outputs_are_the_golden_files(golden, card_bytes, record_bytes):
    for name, text in outputs(card_bytes, record_bytes).items():
        if os.environ.get("PLACET_GOLDEN") == "1":
            (golden / name).write_bytes(text.encode())
        assert text.encode() == (golden / name).read_bytes(), name


@pytest.mark.parametrize("language", LANGUAGES)
def test_page_is_structured_for_every_reader(card_bytes, record_bytes, language):
    for page in pages(card_bytes, record_bytes, language):
        found = outline(page)
        tags = [tag for tag, _ in found.tags]
        assert dict(found.tags)["html"] == {"lang": language}
        for landmark in ("header", "nav", "main", "footer", "h1", "title"):
            assert tags.count(landmark) == 1, landmark
        assert all(attrs.get("scope") in ("row", "col") for tag, attrs in found.tags if tag == "th")
        assert len(found.ids) == len(set(found.ids))
        links = [attrs["href"] for tag, attrs in found.tags if tag == "a"]
        assert all(link[0] == "#" and link[1:] in found.ids for link in links)
        labelled = [attrs["aria-labelledby"] for tag, attrs in found.tags if tag == "section"]
        assert set(labelled) <= set(found.ids)


def test_page_asks_the_network_for_nothing_and_runs_nothing(card_bytes, record_bytes):
    for page in pages(card_bytes, record_bytes, "en"):
        tags = {tag for tag, _ in outline(page).tags}
        assert not tags & {"script", "link", "img", "iframe", "object", "form", "base"}
        assert "default-src 'none'" in page
        assert render.STYLE_HASH in page
        for _, attrs in outline(page).tags:
            assert "style" not in attrs
            assert not any(name.startswith("on") for name in attrs)
        assert "url(" not in page
        assert "@import" not in page


def test_style_hash_is_that_of_the_style_in_the_page(card_bytes):
    import base64
    import hashlib

    style = re.search(r"<style>(.*?)</style>", render.card_html(card_bytes), re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"sha256-{digest}" == render.STYLE_HASH


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_field_shows_its_status_in_words(card_bytes, record_bytes, language):
    readme = render.card_markdown(card_bytes, language)
    for data, page in zip(
        (card_bytes, record_bytes), pages(card_bytes, record_bytes, language), strict=True
    ):
        rows = document.read(data).rows
        shown = re.findall(r'<span class="status">([^<]+)</span>', page)
        assert shown == [words(language)[f"status.{row.status}"] for row in rows]
        for row in rows:
            assert catalogue().fields[row.id].label[language] in page.replace("&#39;", "'")
    assert readme.count(f"**{words(language)['status.missing']}** ·") == 11


def test_missing_field_shows_who_can_supply_it_and_which_article_asks(card_bytes):
    page = render.card_html(card_bytes)
    row = re.search(r'<tr class="missing" id="evaluation.bias_report">.*?</tr>', page, re.DOTALL)[0]
    assert "can be supplied by: the team that asked for the training" in row
    assert "AI Act Art. 10(2)(f) (from 2027-12-02)" in row
    assert "AI Act Annex IV 2(g)" in row


def test_sources_are_shown_with_run_entry_person_and_day(card_bytes):
    page = render.card_html(card_bytes)
    assert "run run_01k2demo00000000000000000" in page
    assert "log entry 41" in page
    assert "declared by prn_01k2submitter0000000000000 on 2026-11-28" in page
    assert "reference row licences/apache-2.0, checked on 2026-11-30" in page


def test_notices_stand_in_their_own_languages_whatever_the_page(record_bytes):
    for language in LANGUAGES:
        page = render.transparency_html(record_bytes, language)
        assert re.findall(r'<p class="notice" lang="(..)">', page) == sorted(LANGUAGES)
        assert "Rozmawiasz z systemem AI. Może się mylić." in page


def test_bar_adds_up(card_bytes):
    widths = [int(width) for width in re.findall(r' width="(\d+)"', render.card_html(card_bytes))]
    assert sum(widths) == 1000


def test_numbers_are_grouped_and_carry_their_unit(card_bytes):
    page = render.card_html(card_bytes)
    assert "134\u202f515\u202f008" in page
    assert "82\u202f700\u202f000\u202f000\u202f000 FLOP" in page
    assert "2048 tokens" in page
    assert "0.0000000051" in page


def test_unknown_field_section_unit_law_and_role_are_shown_as_written(card_bytes):
    raw = json.loads(card_bytes)
    place = {"law": "future-act", "part": "recital", "ref": "9", "applies_from": "2030-01-01"}
    raw["fields"] = [
        {"id": "x.y", "section": "z", "kind": "decimal", "status": "declared", "value": "12345.6",
         "unit": "parsec", "asked_by": [place],
         "source": {"kind": "declared", "by": "prn_1", "on": "2026-11-30", "entry": None}},
        {"id": "x.z", "section": "z", "kind": "line", "status": "missing", "reason": "withheld",
         "note": "", "who": ["keeper"], "asked_by": []},
    ]  # fmt: skip
    raw["completeness"] = {"measured": 0, "declared": 1, "missing": 1,
                           "by_article": [{**place, "supplied": 1, "missing": 0}]}  # fmt: skip
    page = render.card_html(canonical(raw))
    assert words("en")["unnamed"] in page
    for text in ("x.y", "12\u202f345.6 parsec", "future-act 9", "keeper", "by this form only"):
        assert text in page


def test_card_and_record_are_not_taken_for_each_other(card_bytes, record_bytes):
    with pytest.raises(DocumentError, match="expected a model-card document, got transparency"):
        render.card_html(record_bytes)
    with pytest.raises(DocumentError, match="expected a model-card"):
        render.card_markdown(record_bytes)
    with pytest.raises(DocumentError, match="expected a transparency"):
        render.transparency_html(card_bytes)


def test_unknown_language_is_refused(card_bytes):
    with pytest.raises(LanguageError):
        render.card_html(card_bytes, "la")


def test_bytes_do_not_depend_on_the_hash_seed(golden):
    code = (
        "import sys;from model_cards import card,transparency,render;"
        "from model_cards.evidence import Evidence;"
        "e=Evidence.from_json(open(sys.argv[1],'rb').read());c=card.build(e);"
        "t=transparency.build(e);import hashlib;"
        "print(hashlib.sha256(c+t+(render.card_markdown(c)+render.card_html(c,'pl')"
        "+render.transparency_html(t,'de')).encode()).hexdigest())"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code, str(golden / "evidence.json")],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=golden.parents[2],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1")
    }
    assert len(found) == 1


def test_room_loads_no_sibling_and_no_network():
    code = (
        "import sys;from model_cards import render;"
        "bad={'service','policies','trainer','torch','requests','httpx','huggingface_hub'};"
        "sys.exit(str(bad & {name.split('.')[0] for name in sys.modules}) if bad & "
        "{name.split('.')[0] for name in sys.modules} else 0)"
    )
    root = transparency.__file__.rsplit("/", 2)[0]
    subprocess.run([sys.executable, "-c", code], cwd=root, check=True)
