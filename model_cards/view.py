"""A document as people read it: labels, words and texts in one language, not yet any markup.

Everything a person typed passes through `inert.visible` here; HTML and Markdown escape on top.
"""

from dataclasses import dataclass

from model_cards.catalogue import Provision, catalogue
from model_cards.document import Document, Row
from model_cards.evidence import Claim, Declared, Measured, Missing, Source
from model_cards.inert import visible, visible_lines
from model_cards.language import words


@dataclass(frozen=True)
class RowView:
    """One field: what stands in each column. `shape` is text, code, list or pairs."""

    id: str
    label: str
    status: str
    status_word: str
    shape: str
    items: tuple[tuple[str, str], ...]
    basis: tuple[str, ...]


@dataclass(frozen=True)
class SectionView:
    """A titled group of fields."""

    id: str
    title: str
    rows: tuple[RowView, ...]


@dataclass(frozen=True)
class ArticleView:
    """One line of the table of provisions."""

    name: str
    applies_from: str
    supplied: int
    missing: int


@dataclass(frozen=True)
class DocumentView:
    """All texts of one document in one language."""

    language: str
    words: dict[str, str]
    title: str
    subject: str
    summary: str
    law_note: str
    footer: str
    counts: tuple[int, int, int]
    sections: tuple[SectionView, ...]
    articles: tuple[ArticleView, ...]


def view(read: Document, language: str) -> DocumentView:
    """Put a document into the words of one language; raises `LanguageError` as `words` does."""
    texts = words(language)
    counted = read.completeness
    name = read.claim("model.name")
    numbers = {
        "measured": counted.measured,
        "declared": counted.declared,
        "missing": counted.missing,
        "total": counted.total,
    }
    return DocumentView(
        language=language,
        words=texts,
        title=texts["card" if read.name == "model-card" else "transparency"],
        subject=visible(str(name.value)) if name else texts["unnamed"],
        summary=texts["summary"].format(**numbers),
        law_note=texts["law_note"].format(date=read.law_checked_on),
        footer=texts["footer"].format(digest=read.digest),
        counts=(counted.measured, counted.declared, counted.missing),
        sections=_sections(read.rows, language),
        articles=tuple(
            ArticleView(
                _place(count.provision, language),
                count.provision.applies_from,
                count.supplied,
                count.missing,
            )
            for count in counted.by_article
        ),
    )


def _sections(rows: tuple[Row, ...], language: str) -> tuple[SectionView, ...]:
    titles = catalogue().sections
    grouped: dict[str, list[RowView]] = {}
    for row in rows:
        grouped.setdefault(row.section, []).append(_row(row, language))
    return tuple(
        SectionView(name, titles[name][language] if name in titles else name, tuple(found))
        for name, found in grouped.items()
    )


def _row(row: Row, language: str) -> RowView:
    texts, known = words(language), catalogue().fields.get(row.id)
    shape, items = _value(row, texts)
    return RowView(
        id=row.id,
        label=known.label[language] if known else row.id,
        status=row.status,
        status_word=texts[f"status.{row.status}"],
        shape=shape,
        items=items,
        basis=_basis(row.item, language),
    )


def _value(row: Row, texts: dict[str, str]) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Return the shape of the value cell and its (name, text) items; names only for pairs."""
    if isinstance(row.item, Missing):
        note = [row.item.note] if row.item.note else []
        parts = [texts[f"reason.{row.item.reason.value}"], *map(visible, note)]
        return "text", tuple(("", part) for part in parts)
    value = row.item.value
    if isinstance(value, dict):
        return "pairs", tuple(
            (visible(name), " ".join(visible_lines(text))) for name, text in sorted(value.items())
        )
    if isinstance(value, list):
        found = tuple(("", visible(str(part))) for part in value)
        return ("list", found) if found else ("text", (("", texts["none"]),))
    if row.kind in ("digest", "code"):
        return "code", (("", str(value)),)
    return "text", tuple(("", line) for line in _lines(row.kind, value, row.item, texts))


def _lines(kind: str, value: str | int, item: Claim, texts: dict[str, str]) -> list[str]:
    number = isinstance(value, int) or kind == "decimal"
    lines = [_grouped(str(value))] if number else visible_lines(str(value))
    if item.unit is None:
        return lines
    pattern = texts.get(f"unit.{item.unit}")
    if pattern is None:
        return [f"{line} {visible(item.unit)}" for line in lines]
    return [pattern.format(value=line) for line in lines]


def _grouped(number: str) -> str:
    """Set a number of five digits or more in groups of three, as all six languages read it."""
    whole, point, rest = number.partition(".")
    return (f"{int(whole):,}".replace(",", "\u202f") if len(whole) > 4 else whole) + point + rest


def _basis(item: Claim | Missing, language: str) -> tuple[str, ...]:
    texts = words(language)
    if isinstance(item, Claim):
        return _source(item.source, texts)
    roles = [texts.get(f"role.{name}", name) for name in item.who]
    places = [
        texts["since"].format(place=_place(place, language), date=place.applies_from)
        for place in item.asked_by
    ]
    asked = texts["asked"].format(places="; ".join(places)) if places else texts["asked_form"]
    return (texts["who"].format(who=", ".join(roles)), asked)


def _source(source: Source, texts: dict[str, str]) -> tuple[str, ...]:
    if isinstance(source, Measured):
        report = source.document and f"{source.document[:23]}…"
        found = [
            ("run", source.run),
            ("entry", source.entry),
            ("document", report),
            ("at", source.at),
        ]
        return tuple(texts[name].format(**{name: part}) for name, part in found if part is not None)
    if isinstance(source, Declared):
        first = texts["by"].format(by=visible(source.by), on=source.on)
        return (
            (first,) if source.entry is None else (first, texts["entry"].format(entry=source.entry))
        )
    return (texts["row"].format(row=visible(source.row), on=source.checked_on),)


def _place(place: Provision, language: str) -> str:
    law = catalogue().laws.get(place.law)
    short = law.short[language] if law else visible(place.law)
    pattern = words(language).get(f"part.{place.part}")
    ref = visible(place.ref)
    return f"{short} {pattern.format(ref=ref) if pattern else ref}"
