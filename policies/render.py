"""Findings for people: a decision's codes become sentences in one of six languages.

A message template names facts as `{/pointer}`; `*` stands for the index where the rule failed.
The renderer only looks such pointers up. It is not `str.format`: no attributes, no expressions.
Output is plain text; whoever puts it into HTML, Markdown or a terminal escapes it there. Values
come from facts that met the contract, so they hold no control characters, quotes or markup;
where the contract was broken no value is shown at all.
"""

import functools
import re
from collections.abc import Iterator, Mapping
from importlib import resources
from typing import Any, TypedDict

from policies.decision import Decision, Finding
from policies.lint import PLACEHOLDER
from policies.pointers import fill, get, pattern_of
from policies.policy import Policy
from policies.reference import Reference
from policies.rule import LANGUAGES, Rule
from policies.strict import parse_yaml
from policies.wording import label
from policies.wording import law as cite
from policies.wording import value as written

UNKNOWN_VALUE = "?"
MAX_VALUE_CHARS = 200

_PLACE = re.compile(r"/derived(/compute|/serving|/datasets/[0-9]+|/storage/[0-9]+)/")
_WORD = re.compile(r"\{(pointer|keyword|family)\}")


class Law(TypedDict):
    """What a rule rests on, and since which day; `name` is `ref` as the language cites it."""

    ref: str
    name: str
    since: str
    note: str


class Explanation(TypedDict):
    """One finding in words, ready for JSON.

    `pointer` and `value` say where it failed and what stood there; for an unknown fact about a
    place, the value is the place. `fact` names the fact in words. `law` is empty where no rule
    speaks but the gate itself.
    """

    rule: str
    version: str
    effect: str
    outcome: str
    severity: str
    title: str
    pointer: str
    fact: str
    value: str | None
    message: str
    remediation: str
    law: list[Law]


def explain(
    decision: Decision, policy: Policy, language: str = "en", reference: Reference | None = None
) -> list[Explanation]:
    """Put every finding of a decision into words, the gravest first.

    One explanation for each rule and place of failure. `policy` is the one that decided; an
    unknown language falls back to English; `reference` gives providers their names.
    """
    tongue = language if language in LANGUAGES else "en"
    found = [*_contract(decision, tongue), *_obligations(decision, tongue)]
    for finding in decision.findings:
        rule = policy.rule(finding.rule)
        if rule is not None:
            found += _rule(decision, finding, rule, (tongue, reference))
    if not found and not decision.results:
        found.append(_general("policy.empty", "empty", tongue))
    return sorted(found, key=_gravity)


def _gravity(one: Explanation) -> tuple[int, int, bool]:
    effects = ("deny", "require_approval", "warn")
    outcomes = ("error", "violated", "unknown", "waived")
    is_closed = one["effect"] != "warn" and one["outcome"] in ("error", "unknown")
    effect = 0 if is_closed else effects.index(one["effect"])
    return (effect, outcomes.index(one["outcome"]), one["rule"] == "policy.obligation")


def _contract(decision: Decision, language: str) -> Iterator[Explanation]:
    for pointer, keyword in decision.contract_errors:
        words = {"pointer": pointer or "/", "keyword": keyword}
        yield _general("facts.contract", "contract", language, pointer=pointer, words=words)


def _obligations(decision: Decision, language: str) -> Iterator[Explanation]:
    for family, state in sorted(decision.obligations.items()):
        if state != "asked":
            words = {"family": family}
            outcome = "violated" if state == "missing" else "unknown"
            yield _general("policy.obligation", "obligation", language, outcome, words=words)


def _general(
    rule: str,
    kind: str,
    language: str,
    outcome: str = "violated",
    *,
    pointer: str = "",
    words: Mapping[str, str] | None = None,
) -> Explanation:
    """Explain what no rule says: the contract, an obligation, an empty policy."""
    return Explanation(
        rule=rule,
        version="",
        effect="deny",
        outcome=outcome,
        severity="critical",
        title=_say(f"{kind}_title", language, {}),
        pointer=pointer,
        fact="",
        value=None,
        message=_say(kind, language, words or {}),
        remediation=_say(f"{kind}_remedy", language, {}),
        law=[],
    )


def _rule(
    decision: Decision, finding: Finding, rule: Rule, reader: tuple[str, Reference | None]
) -> Iterator[Explanation]:
    language = reader[0]
    seen = {**(decision.document["facts"] or {}), "derived": decision.document["derived"]}
    remedy: str = rule.document["remediation"][language]
    places: list[tuple[str, str | None, str]]
    if finding.outcome == "unknown":
        warns = finding.effect == "warn"
        remedy = _say("unknown_warn_remedy" if warns else "unknown_remedy", language, {})
        places = [
            (p, _place(p, seen), _say("unknown", language, {"pointer": label(p, seen, language)}))
            for p in finding.missing
        ]
    elif finding.outcome == "error":
        remedy = _say("error_remedy", language, {})
        places = [("", None, _say("error", language, {}))]
    else:
        pointers = sorted({pointer for pointer, _ in finding.at})
        places = [
            (p, text_of(get(seen, p)), fill_in(_message(rule, p, language), p, seen, reader))
            for p in pointers
        ]
    for pointer, value, message in places:
        yield Explanation(
            rule=rule.id,
            version=finding.version,
            effect=finding.effect,
            outcome=finding.outcome,
            severity=rule.document["severity"],
            title=rule.document["title"][language],
            pointer=pointer,
            fact=label(pointer, seen, language) if pointer else "",
            value=value,
            message=message,
            remediation=remedy,
            law=[
                Law(ref=b["ref"], name=cite(b["ref"], language), since=b["from"], note=b["note"])
                for b in rule.document["legal_basis"]
            ],
        )


def _place(pointer: str, seen: Mapping[str, Any]) -> str | None:
    """Say which place an unknown derived fact is about: `ovhcloud / ai-training / GRA99`."""
    found = _PLACE.match(pointer)
    if found is None:
        return None
    at = get(seen, {"/serving": "/deploy"}.get(found.group(1), found.group(1)))
    names = ("provider", "service", "region")
    return " / ".join(text_of(at.get(n)) for n in names) if isinstance(at, dict) else None


def _message(rule: Rule, pointer: str, language: str) -> str:
    messages = rule.document["messages"]
    texts = messages.get(pattern_of(pointer)) or messages[""]
    return str(texts[language])


def fill_in(
    template: str,
    pointer: str,
    seen: Mapping[str, Any],
    reader: tuple[str, Reference | None] = ("en", None),
) -> str:
    """Replace each `{/pointer}` by the value there in words; `*` takes the indexes of `pointer`.

    `reader` is the language, and the reference data that name providers.
    """

    def said(match: re.Match[str]) -> str:
        before, name = match.groups()
        place = fill(name, pointer)
        text = written(pattern_of(place), get(seen, place), *reader)
        if before is None:
            return text
        is_elided = reader[0] == "fr" and _VOWEL.match(text) is not None
        return f"{before}'{text}" if is_elided else f"{before}e {text}"

    return _HOLE.sub(said, template)


# French drops the vowel of `de` and `que` before another one: `d'OVHcloud`.
_HOLE = re.compile(rf"(?:\b([Dd]|[Qq]u)e )?{PLACEHOLDER.pattern}")
_VOWEL = re.compile(r"[aeiouâàéèêëîïôûù]", re.IGNORECASE)


def text_of(value: Any) -> str:
    """Write a fact for machines and logs: lists with commas, true and false, `?` for unknown."""
    if value is None:
        return UNKNOWN_VALUE
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        text = ", ".join(text_of(item) for item in value) or "[]"
    elif isinstance(value, dict):
        text = "{…}"
    else:
        text = str(value)
    return text if len(text) <= MAX_VALUE_CHARS else text[: MAX_VALUE_CHARS - 1] + "…"


@functools.cache
def _sentences() -> Any:
    return parse_yaml(resources.files("policies").joinpath("texts.yaml").read_bytes())


def _say(name: str, language: str, words: Mapping[str, str]) -> str:
    return _WORD.sub(lambda m: words[m.group(1)], _sentences()[name][language])
