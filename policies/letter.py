"""A decision as an officer would write it: one page of plain text, in the reader's language.

It says the verdict, then each ground once: what was seen, what the rule rests on, what to do; then
who may approve. It is made from the record and the policy that decided, so the same record gives
the same letter, whoever prints it. It has no markup; terminals and pages escape what they must.
"""

import textwrap
from collections.abc import Iterable, Iterator
from itertools import groupby

from policies.decision import Decision
from policies.policy import Policy
from policies.reference import Reference
from policies.render import Explanation, explain
from policies.rule import LANGUAGES
from policies.wording import code, day, law, moment, phrase

WIDTH = 96
_SPACES = "\u00a0\u202f"  # as CLDR writes them inside numbers and amounts
_GROUPS = ("refuses", "asks", "warns", "waives")


def letter(
    decision: Decision, policy: Policy, reference: Reference | None = None, language: str = "en"
) -> str:
    """Write the letter; an unknown language falls back to English.

    `policy` is the one that decided. `reference` gives providers their names.
    """
    tongue = language if language in LANGUAGES else "en"
    lines = [*_head(decision, tongue), ""]
    lines += _paragraph(phrase(f"{decision.verdict}_opening", tongue))
    found = explain(decision, policy, tongue, reference)
    for group in _GROUPS:
        members = [one for one in found if _group(one) == group]
        if members:
            lines += ["", phrase(group, tongue)]
            lines += _grounds(decision, members, tongue)
    if decision.approvals:
        lines += ["", *_approvers(decision, tongue)]
    lines += ["", *_paragraph(phrase("footer", tongue))]
    return "".join(f"{_plain(line).rstrip()}\n" for line in lines)


def _plain(line: str) -> str:
    """Drop what could move a cursor: nothing but printable characters reaches a terminal."""
    return "".join(char if char.isprintable() or char in _SPACES else "?" for char in line)


def _head(decision: Decision, language: str) -> list[str]:
    kind, _, name = str(decision.document["subject"]).partition(":")
    named = phrase(kind, language, {"id": name}) if kind in ("job", "deployment") else name
    rows = {
        "decision": phrase(decision.verdict, language),
        "subject": named,
        "decided": moment(str(decision.document["evaluated_at"]), language),
        "valid_until": moment(decision.valid_until, language),
        "record": decision.digest,
    }
    return list(_table([(phrase(key, language), text) for key, text in rows.items()], indent=0))


def _group(one: Explanation) -> str:
    if one["outcome"] == "waived":
        return "waives"
    if one["effect"] == "warn":
        return "warns"
    is_closed = one["outcome"] in ("unknown", "error") or one["effect"] == "deny"
    return "refuses" if is_closed else "asks"


def _grounds(decision: Decision, found: list[Explanation], language: str) -> Iterator[str]:
    """Write each rule once, with all places where it failed."""
    by_rule = groupby(found, key=lambda one: (one["rule"], one["title"], one["remediation"]))
    for number, ((rule, title, remedy), members) in enumerate(by_rule, 1):
        ones = list(members)
        yield ""
        yield from _paragraph(f"{number}. {title}", indent=2, hanging=3)
        rows = [(phrase("seen", language), text) for text in dict.fromkeys(_seen(ones, language))]
        rows += _laws(ones[0], language)
        rows += [(phrase("remedy", language), remedy)]
        rows += _waivers(decision, rule, language) if ones[0]["outcome"] == "waived" else []
        yield from _table(rows, indent=5)


def _seen(ones: list[Explanation], language: str) -> Iterator[str]:
    unknown = [one["fact"] for one in ones if one["outcome"] == "unknown" and one["fact"]]
    if unknown:
        between = "\u00a0; " if language == "fr" else "; "
        yield phrase("not_known", language, {"facts": between.join(dict.fromkeys(unknown))})
    yield from (one["message"] for one in ones if not (one["outcome"] == "unknown" and one["fact"]))


def _laws(one: Explanation, language: str) -> list[tuple[str, str]]:
    head = phrase("law", language)
    texts = [
        phrase(
            "since",
            language,
            {"law": law(basis["ref"], language), "date": day(basis["since"], language)},
        )
        for basis in one["law"]
    ]
    return [(head, text) for text in texts]


def _waivers(decision: Decision, rule: str, language: str) -> list[tuple[str, str]]:
    return [
        (
            phrase("waives", language),
            phrase(
                "waiver",
                language,
                {"id": str(one["id"]), "date": moment(str(one["expires_at"]), language)},
            ),
        )
        for one in decision.document["waivers"]
        if one["rule"] == rule
    ]


def _approvers(decision: Decision, language: str) -> Iterator[str]:
    head = phrase("approvers", language)
    rows = []
    for one in decision.approvals:
        role = phrase("officer", language) if one.role == "officer" else code(one.role, language)
        rows.append((head, phrase("approver", language, {"count": str(one.count), "role": role})))
    yield from _table(rows, indent=0)


def _table(rows: Iterable[tuple[str, str]], *, indent: int) -> Iterator[str]:
    """Write heads and texts in two columns; a head that repeats is written once."""
    listed = list(rows)
    width = max((len(head) for head, _ in listed), default=0) + 2
    before = ""
    for head, text in listed:
        shown = "" if head == before else head
        before = head
        start = " " * indent + shown.ljust(width)
        yield from textwrap.wrap(
            text,
            WIDTH,
            initial_indent=start,
            subsequent_indent=" " * (indent + width),
            break_long_words=False,
            break_on_hyphens=False,
        ) or [start]


def _paragraph(text: str, *, indent: int = 0, hanging: int = 0) -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent + hanging),
        break_long_words=False,
        break_on_hyphens=False,
    )
