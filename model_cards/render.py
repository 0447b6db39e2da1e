"""Documents for people: Hugging Face README and web pages, in six languages.

    card_markdown(card_bytes)            README.md with its YAML head
    card_html(card_bytes, "fr")          one self-contained page, no script, no request
    transparency_html(record_bytes, "pl")

The input is the canonical JSON of `card.build` or `transparency.build`; the output depends on it
and the language alone. Pages carry their own Content-Security-Policy; a server that sends one
itself needs `'{STYLE_HASH}'` in `style-src`.
"""

import base64
import hashlib
from functools import cache
from pathlib import Path
from typing import Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from model_cards import document
from model_cards.catalogue import LANGUAGES
from model_cards.document import Document, DocumentError
from model_cards.hub import front_matter
from model_cards.inert import markdown
from model_cards.language import AUTONYMS
from model_cards.view import DocumentView, RowView, view

TEMPLATES: Final = Path(__file__).parent / "templates"
STYLE: Final = (TEMPLATES / "document.css").read_text("utf-8")
STYLE_HASH: Final = "sha256-" + base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()


def card_markdown(data: bytes, language: str = "en") -> str:
    """Return the README of a model card: YAML head, then one table per section.

    Raises:
        DocumentError: `data` is not a model card.
        LanguageError: not one of our six languages.
    """
    card = _expect(data, "model-card")
    shown = view(card, language)
    texts = shown.words
    parts = [
        front_matter(card),
        f"# {markdown(shown.subject)}",
        f"**{texts['card']}** · {markdown(shown.summary)}",
        texts["how"],
    ]
    head = [texts["field"], texts["value"], texts["basis"]]
    for section in shown.sections:
        parts.append(f"## {markdown(section.title)}")
        parts.append(_table(head, [_markdown_row(row) for row in section.rows]))
    parts += [f"## {texts['law']}", markdown(shown.law_note)]
    head = [texts["provision"], texts["applies_from"], texts["supplied"], texts["missing"]]
    parts.append(
        _table(
            head,
            [
                [markdown(row.name), row.applies_from, str(row.supplied), str(row.missing)]
                for row in shown.articles
            ],
        )
    )
    parts.append(markdown(shown.footer))
    return "\n\n".join(parts) + "\n"


def card_html(data: bytes, language: str = "en") -> str:
    """Return the page of a model card; raises as `card_markdown` does."""
    return _html(view(_expect(data, "model-card"), language))


def transparency_html(data: bytes, language: str = "en") -> str:
    """Return the page of a transparency record, its notices in every language given.

    Raises:
        DocumentError: `data` is not a transparency record.
        LanguageError: not one of our six languages.
    """
    return _html(view(_expect(data, "transparency"), language))


def _expect(data: bytes, name: str) -> Document:
    found = document.read(data)
    if found.name != name:
        raise DocumentError(f"expected a {name} document, got {found.name}")
    return found


def _html(shown: DocumentView) -> str:
    return _template().render(
        doc=shown,
        words=shown.words,
        style=Markup(STYLE),  # noqa: S704 - our own file, constant
        style_hash=STYLE_HASH,
        autonyms=AUTONYMS,
        languages=LANGUAGES,
        bar=_bar(shown.counts),
    )


@cache
def _template() -> Template:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template("document.html.j2")


def _bar(counts: tuple[int, int, int]) -> list[tuple[str, int, int]]:
    """Return (status, start, width) in thousandths of the bar; widths add up to 1000."""
    total, start, seen, parts = sum(counts) or 1, 0, 0, []
    for status, count in zip(("measured", "declared", "missing"), counts, strict=True):
        seen += count
        end = 1000 * seen // total
        parts.append((status, start, end - start))
        start = end
    return parts


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _markdown_row(row: RowView) -> list[str]:
    if row.shape == "code":
        cell = f"`{row.items[0][1]}`"
    elif row.shape == "pairs":
        cell = "<br>".join(f"{markdown(name)}: {markdown(text)}" for name, text in row.items)
    else:
        cell = "<br>".join(markdown(text) for _, text in row.items)
    basis = "; ".join(markdown(part) for part in row.basis)
    return [markdown(row.label), cell, f"**{row.status_word}** · {basis}"]
