"""What a stranger types shows as text, in every output."""

import re
import unicodedata

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from model_cards import card, render, transparency, values
from model_cards.catalogue import LANGUAGES, catalogue
from model_cards.evidence import Claim, Declared, Evidence, Missing, Reason
from model_cards.inert import markdown, visible, visible_lines

HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "' onmouseover='x",
    "[click](javascript:alert(1))",
    "![x](http://evil.example/x.png)",
    "<http://evil.example>",
    "http://evil.example www.evil.example a@evil.example @team",
    "| a | b |",
    "`code` **bold** _it_ ~~s~~ $x$",
    "{{ 7*7 }} {% raw %} ${7*7}",
    "--- # head > quote",
    "\\| \\` \\<b>",
    "&lt;b&gt; &#60;script&#62;",
    "abc\u202egnp.exe\u202c \u2066x\u2069 \u200b\ufeff",
    "\x00\x07\x1b[31mred",
    "=HYPERLINK(1)",
    "</style><b>x</b>",
    "[^1] [x][y] <!-- c -->",
]


def everywhere(text):
    """Return evidence that has `text` in each place where a person may type."""
    source = Declared(by=text, on="2026-11-30")
    shapes = {"line": text, "text": text, "lines": [text, text], "table": {text: text}}
    given = {
        field.id: Claim(shapes[field.kind], source)
        for field in catalogue().fields.values()
        if field.kind in shapes
    }
    return Evidence.of({**given, "base.digest": Missing(Reason.WITHHELD, note=text)})


def skeleton(page):
    """Return all tags of a page, which must not depend on what was typed."""
    return re.findall(r"<[^>]*>", page)


def no_markup(readme):
    parser = MarkdownIt("gfm-like", {"html": True, "linkify": False})
    body = readme.split("\n---\n", 1)[1]
    kinds, html = set(), set()
    for token in parser.parse(body):
        for inner in token.children or []:
            kinds.add(inner.type)
            if inner.type == "html_inline":
                html.add(inner.content)
        if token.type in ("html_block", "fence", "code_block", "blockquote_open", "hr"):
            pytest.fail(token.type)
    assert html <= {"<br>"}
    assert not kinds & {"link_open", "image", "em_open", "s_open"}


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_makes_no_markup(text):
    evidence, plain = everywhere(text), everywhere("x")
    for build, pages in (
        (card.build, render.card_html),
        (transparency.build, render.transparency_html),
    ):
        assert skeleton(pages(build(evidence))) == skeleton(pages(build(plain)))
    no_markup(render.card_markdown(card.build(evidence)))


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_adds_no_table_cell(text):
    plain = render.card_markdown(card.build(everywhere("x")))
    readme = render.card_markdown(card.build(everywhere(text)))

    def cells(output):
        body = output.split("\n---\n", 1)[1]
        return [
            len(re.findall(r"(?<!\\)\|", line)) for line in body.splitlines() if line[:1] == "|"
        ]

    assert cells(readme) == cells(plain)


def test_bare_addresses_do_not_become_links():
    shown = markdown("see http://evil.example, www.evil.example, ftp://x and a@evil.example")
    assert not re.search(r"https?://|ftp://|www\.|@", shown)


def test_hidden_and_reordering_marks_are_spelled_out():
    assert visible("a\u202eb") == "a⟨U+202E⟩b"
    assert visible("a\x00b") == "a⟨U+0000⟩b"
    assert visible("zero\u200bwidth") == "zero⟨U+200B⟩width"
    assert visible("two\nlines\u2028three") == "two lines three"
    assert visible("tab\there\u00a0now") == "tab here now"
    assert visible("Łódź, č, ñ, 漢字") == "Łódź, č, ñ, 漢字"
    assert visible_lines("a\n\n b \n") == ["a", " b "]


@given(st.text())
def test_visible_text_holds_nothing_hidden_and_is_stable(text):
    shown = visible(text)
    assert all(
        unicodedata.category(character) not in {"Cc", "Cf", "Zl", "Zp", "Co", "Cn", "Cs"}
        for character in shown
    )
    assert visible(shown) == shown


@given(st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), max_size=40))
def test_markdown_shows_exactly_the_visible_text(text):
    parser = MarkdownIt("gfm-like", {"html": True, "linkify": False})
    inline = parser.parseInline("x " + markdown(text) + " x")[0].children
    shown = "".join(token.content if token.type != "softbreak" else "\n" for token in inline)
    assert {token.type for token in inline} <= {"text", "text_special"}
    assert shown == f"x {visible(text)} x"


TEXT = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=30)
LINE = TEXT.filter(values.is_line)
KIND = {
    "line": LINE,
    "text": TEXT,
    "code": st.from_regex(r"[A-Za-z0-9._:/@-]{1,20}", fullmatch=True),
    "digest": st.from_regex(r"sha256:[0-9a-f]{64}", fullmatch=True),
    "integer": st.integers(0, 2**53 - 1),
    "decimal": st.from_regex(r"-?(0|[1-9][0-9]{0,40})(\.[0-9]{1,18})?", fullmatch=True).filter(
        str.isascii
    ),
    "instant": st.just("2026-11-30T09:00:00Z"),
    "lines": st.lists(LINE, max_size=3),
    "integers": st.lists(st.integers(0, 9), max_size=3),
    "table": st.dictionaries(LINE, TEXT, min_size=1, max_size=3),
}
SOURCE = st.builds(Declared, by=LINE, on=st.just("2026-11-30"), entry=st.none() | st.integers(0, 9))


def item(field):
    claims = st.builds(Claim, KIND[field.kind], SOURCE)
    return claims | st.builds(Missing, st.sampled_from(Reason), note=st.just("") | LINE)


EVIDENCE = st.sets(st.sampled_from(list(catalogue().fields)), max_size=12).flatmap(
    lambda names: st.fixed_dictionaries(
        {name: item(catalogue().fields[name]) for name in sorted(names)}
    )
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(EVIDENCE, st.sampled_from(LANGUAGES))
def test_any_evidence_renders_and_only_our_own_tags_come_out(given_, language):
    evidence = Evidence.of(given_)
    card_bytes, record_bytes = card.build(evidence), transparency.build(evidence)
    assert Evidence.from_json(evidence.to_json()) == evidence
    no_markup(render.card_markdown(card_bytes, language))
    for page in (
        render.card_html(card_bytes, language),
        render.transparency_html(record_bytes, language),
    ):
        tags = {re.match(r"</?([a-zA-Z!]+)", tag)[1] for tag in skeleton(page)}
        assert not tags & {"script", "img", "iframe", "b", "object"}
        body = page.split("</style>", 1)[1]
        assert not re.search(r"<(?!/?(?:[a-z][a-z0-9]*)[ >])", body)
        assert not re.search(r"[\u202a-\u202e\u2066-\u2069\x00-\x08]", page)
