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
from dataclasses import dataclass
from importlib import resources
from typing import Any

from policies.decision import Decision, Finding
from policies.lint import PLACEHOLDER
from policies.pointers import fill, get, pattern_of
from policies.policy import Policy
from policies.rule import LANGUAGES, Rule
from policies.strict import parse_yaml

UNKNOWN_VALUE = "?"
MAX_VALUE_CHARS = 200

_WORD = re.compile(r"\{(pointer|keyword|family)\}")


@dataclass(frozen=True, slots=True)
class Law:
    """What a rule rests on, and since which day."""

    ref: str
    since: str
    note: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """One finding in words; `pointer` and `value` say where it failed and what stood there."""

    rule: str
    version: str
    effect: str
    outcome: str
    severity: str
    title: str
    pointer: str
    value: str | None
    message: str
    remediation: str
    law: tuple[Law, ...]


def explain(decision: Decision, policy: Policy, language: str = "en") -> list[Explanation]:
    """Put every finding of a decision into words, the gravest first.

    One explanation for each rule and place of failure. `policy` is the one that decided; an
    unknown language falls back to English.
    """
    tongue = language if language in LANGUAGES else "en"
    found = [*_contract(decision, tongue), *_obligations(decision, tongue)]
    for finding in decision.findings:
        rule = policy.rule(finding.rule)
        if rule is not None:
            found += _rule(decision, finding, rule, tongue)
    if not found and not decision.results:
        found.append(_general("policy.empty", "", None, ("obligation_title", "empty"), tongue, {}))
    return sorted(found, key=_gravity)


def _gravity(one: Explanation) -> tuple[int, int]:
    effects = ("deny", "require_approval", "warn")
    outcomes = ("error", "violated", "unknown", "waived")
    is_closed = one.effect != "warn" and one.outcome in ("error", "unknown")
    return (0 if is_closed else effects.index(one.effect), outcomes.index(one.outcome))


def _contract(decision: Decision, language: str) -> Iterator[Explanation]:
    for pointer, keyword in decision.contract_errors:
        words = {"pointer": pointer or "/", "keyword": keyword}
        names = ("contract_title", "contract", "contract_remedy")
        yield _general("facts.contract", pointer, None, names, language, words)


def _obligations(decision: Decision, language: str) -> Iterator[Explanation]:
    for family, state in sorted(decision.obligations.items()):
        if state == "missing":
            names = ("obligation_title", "obligation", "obligation_remedy")
            yield _general("policy.obligation", "", family, names, language, {"family": family})


def _general(
    rule: str,
    pointer: str,
    value: str | None,
    names: tuple[str, ...],
    language: str,
    words: Mapping[str, str],
) -> Explanation:
    title, message = (_say(name, language, words) for name in names[:2])
    remedy = _say(names[2] if len(names) > 2 else "obligation_remedy", language, words)
    return Explanation(
        rule, "", "deny", "violated", "critical", title, pointer, value, message, remedy, ()
    )


def _rule(decision: Decision, finding: Finding, rule: Rule, language: str) -> Iterator[Explanation]:
    seen = {**(decision.document["facts"] or {}), "derived": decision.document["derived"]}
    places: list[tuple[str, str, str]]
    remedy = rule.document["remediation"][language]
    if finding.outcome == "unknown":
        places = [(p, "unknown", "") for p in finding.missing]
    elif finding.outcome == "error":
        places, remedy = [("", "error", "")], _say("error_remedy", language, {})
    else:
        pointers = sorted({pointer for pointer, _ in finding.at})
        places = [(p, "", _message(rule, p, language)) for p in pointers]
    for pointer, name, template in places:
        said = _say(name, language, {"pointer": pointer}) if name else ""
        value = get(seen, pointer) if pointer and not name else None
        yield Explanation(
            rule=rule.id,
            version=finding.version,
            effect=finding.effect,
            outcome=finding.outcome,
            severity=rule.document["severity"],
            title=rule.document["title"][language],
            pointer=pointer,
            value=None if value is None else text_of(value),
            message=said or fill_in(template, pointer, seen),
            remediation=remedy,
            law=tuple(Law(b["ref"], b["from"], b["note"]) for b in rule.document["legal_basis"]),
        )


def _message(rule: Rule, pointer: str, language: str) -> str:
    messages = rule.document["messages"]
    texts = messages.get(pattern_of(pointer)) or messages[""]
    return str(texts[language])


def fill_in(template: str, pointer: str, seen: Mapping[str, Any]) -> str:
    """Replace each `{/pointer}` by the value there; `*` takes the indexes of `pointer`."""
    return PLACEHOLDER.sub(lambda m: text_of(get(seen, fill(m.group(1), pointer))), template)


def text_of(value: Any) -> str:
    """Write a fact for reading: lists with commas, true and false as such, `?` for unknown."""
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
