"""Twelve rules, as placet.rule/1 and as Rego, that must answer alike."""

from typing import Any

from policies.policy import Policy
from policies.rule import Rule

TEXTS = dict.fromkeys(("en", "fr", "de", "es", "pt", "pl"), "text")


def _inside(path: str, schema: dict[str, Any]) -> dict[str, Any]:
    """Put a schema at a path; `*` is every element of a list that must have one."""
    for part in reversed(path.strip("/").split("/")):
        if part == "*":
            schema = {"minItems": 1, "items": schema}
        else:
            schema = {"required": [part], "properties": {part: schema}}
    return schema


# id, effect, applies_when, requires
TWELVE = (
    ("residency.compute", "deny", None, ("/derived/compute/in_eea", {"const": True})),
    ("residency.datasets", "deny", None, ("/derived/datasets/*/in_eea", {"const": True})),
    ("tagging.present", "deny", None, ("/datasets/*/categories_declared", {"minItems": 1})),
    (
        "hds.status",
        "deny",
        ("/derived/data/health", {"const": True}),
        ("/derived/compute/hds/status", {"enum": ["valid", "exempt"]}),
    ),
    (
        "hds.days",
        "deny",
        ("/derived/data/health", {"const": True}),
        ("/derived/compute/hds/days_short", {"maximum": 0}),
    ),
    (
        "jurisdiction.us",
        "require_approval",
        None,
        ("/derived/compute/us_exposure", {"enum": ["none_identified"]}),
    ),
    ("budget.limit", "deny", None, ("/derived/budget/headroom_cents", {"minimum": 0})),
    ("budget.nearly", "warn", None, ("/derived/budget/used_permille", {"maximum": 800})),
    ("gpai.third", "require_approval", None, ("/derived/gpai/share_permille", {"maximum": 333})),
    (
        "gdpr.art9",
        "deny",
        ("/derived/data/special", {"const": True}),
        ("/derived/datasets/*/art9_basis", {"enum": ["stated"]}),
    ),
    ("scope.gpus", "deny", None, ("/compute/gpus", {"maximum": 4})),
    ("use.prohibited", "deny", None, ("/purpose/prohibited_practices", {"maxItems": 0})),
)

# The checks of the same rules on a value `v`.
_REGO = {
    "const": "v == {}",
    "enum": "v in {}",
    "maximum": "v <= {}",
    "minimum": "v >= {}",
    "minItems": "count(v) >= {}",
    "maxItems": "count(v) <= {}",
}


def policy_of_twelve(copies: int = 1) -> Policy:
    """Make the policy of the twelve rules; with `copies`, each so often."""
    rules = [
        Rule(
            {
                "format": "placet.rule/1",
                "id": f"{name}-{number}" if copies > 1 else name,
                "version": "1.0.0",
                "family": name.partition(".")[0],
                "stages": ["train"],
                "effective": {"from": "2026-01-01T00:00:00Z", "until": None},
                "severity": "high",
                "effect": effect,
                "approvals": [{"role": "officer", "count": 1}]
                if effect == "require_approval"
                else [],
                "waivable": False,
                "legal_basis": [{"ref": "house policy", "from": "2026-01-01", "note": "bench"}],
                "title": TEXTS,
                "applies_when": None if applies is None else _inside(*applies),
                "requires": _inside(*requires),
                "messages": {"": TEXTS},
                "remediation": TEXTS,
            }
        )
        for number in range(copies)
        for name, effect, applies, requires in TWELVE
    ]
    obligations = [
        {"family": family, "stages": ["train"], "data": "any"}
        for family in ("budget", "residency", "tagging")
    ]
    pack = {
        "format": "placet.pack/1",
        "id": "bench",
        "version": "1.0.0",
        "title": TEXTS,
        "validity_minutes": 60,
        "obligations": obligations,
    }
    return Policy((pack,), tuple(rules))


def rego_of_twelve(copies: int = 1) -> str:
    """Write the twelve rules in Rego: an object of each rule's outcome."""
    parts = ["package placet", "import rego.v1"]
    names = []
    for number in range(copies):
        for index, (name, _, applies, requires) in enumerate(TWELVE):
            names.append((f"{name}-{number}" if copies > 1 else name, f"r{index}_{number}"))
            parts.append(_rego_rule(f"r{index}_{number}", applies, requires))
    parts.append("results := {%s}" % ", ".join(f'"{name}": {rule}' for name, rule in names))  # noqa: UP031
    return "\n".join(parts)


def _rego_rule(name: str, applies: tuple[str, Any] | None, requires: tuple[str, Any]) -> str:
    """Ask for a pass first: that is the outcome which OPA reaches soonest, and the usual one."""
    branches = []
    path, schema = requires
    head, _, tail = path.partition("/*/")
    keyword, bound = next(iter(schema.items()))
    check = _REGO[keyword].format(_rego(bound))
    ref = "input" + head.replace("/", ".")
    if applies is not None:
        when = "input" + applies[0].replace("/", ".")
        branches += [
            (f'"unknown" if {_is_unknown(applies[0])}'),
            (f'"not_applicable" if {when} != {_rego(applies[1]["const"])}'),
        ]
    if tail:
        branches += [
            f'"pass" if {{ count({ref}) >= 1; every d in {ref} {{ v := d.{tail}; {check} }} }}',
            f'"unknown" if {_is_unknown(head)}',
            f'"unknown" if {{ some d in {ref}; object.get(d, "{tail}", null) == null }}',
        ]
    else:
        branches += [
            f'"pass" if {{ v := {ref}; v != null; {check} }}',
            f'"unknown" if {_is_unknown(head)}',
        ]
    return f"{name} := " + " else := ".join([*branches, '"violated"'])


def _is_unknown(path: str) -> str:
    parts = ", ".join(f'"{part}"' for part in path.strip("/").split("/"))
    return f"object.get(input, [{parts}], null) == null"


def _rego(value: Any) -> str:
    if isinstance(value, list):
        return "{%s}" % ", ".join(map(_rego, value))  # noqa: UP031
    return (
        {True: "true", False: "false"}[value]
        if isinstance(value, bool)
        else repr(value).replace("'", '"')
    )
