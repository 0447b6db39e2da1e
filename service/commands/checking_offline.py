"""`placet check --facts`: decide on a facts document with the packs and tables on this machine.

No service, no waivers, and no claim about what is in force anywhere: a what-if for rule authors and
for pipelines that test packs.
"""

import argparse
from typing import Any

from policies.checked import Checked
from policies.decision import GateError
from policies.facts import FactsError, parse_facts
from policies.gate import decide
from policies.load import PACKS, REFERENCE, load_policy, load_reference
from policies.positions import positions_of
from policies.reference import Reference, ReferenceDataError
from policies.render import explain
from policies.rule import RuleError
from service.commands.errors import CommandError, Status

PLACES = (
    ("/derived/serving", "/deploy"),
    ("/derived/data", "/datasets"),
    ("/derived/budget", "/cost"),
    ("/derived/gpai", "/training"),
    ("/derived/estimate", "/training"),
    ("/derived/chain", "/storage"),
    ("/derived/duties", "/purpose"),
    ("/derived/dora", "/governance"),
    ("/derived/certificates", "/compute"),
    ("/derived", ""),
)


def decided(arguments: argparse.Namespace) -> Checked:
    """Decide on the facts document of a parsed `placet check --facts`.

    Raises:
        CommandError: the facts, packs, tables or the instant cannot be used.
    """
    try:
        data = arguments.facts.read_bytes()
        syntax = "json" if arguments.facts.suffix == ".json" else "yaml"
        facts = parse_facts(data, syntax=syntax)
        policy = load_policy(arguments.packs or [PACKS])
        made = decide(
            policy, _reference(arguments), facts, evaluated_at=arguments.at, subject="job:check"
        )
    except (FactsError, RuleError, ReferenceDataError, GateError) as error:
        raise CommandError(str(error), Status.USAGE) from error
    except OSError as error:
        told = f"cannot read `{error.filename}`: {error.strerror}"
        raise CommandError(told, Status.USAGE) from error
    return Checked(
        file=str(arguments.facts),
        verdict=made.verdict,
        findings=[dict(one) for one in explain(made, policy, arguments.language or "en")],
        results=[
            {"rule": r.rule, "version": r.version, "effect": r.effect, "outcome": r.outcome}
            for r in made.results
        ],
        approvals=[{"role": a.role, "count": a.count} for a in made.approvals],
        evaluated_at=arguments.at,
        digests={
            "record": made.digest,
            "facts": made.facts_digest,
            "policy": made.document["policy"],
            "reference": made.document["reference"],
        },
        language=arguments.language or "en",
        positions=positions_of(data),
        places=PLACES,
    )


def _reference(arguments: argparse.Namespace) -> Reference:
    folder = arguments.reference or REFERENCE
    if arguments.site_country is None:
        return load_reference(folder)
    site: dict[str, Any] = {
        "country": arguments.site_country,
        "declared_by": "what-if",
        "checked_on": arguments.at[:10],
    }
    return load_reference(folder, site=site)
