import copy
from collections.abc import Callable
from typing import Any

import pytest

from policies.cases import CASE_SITE
from policies.decision import Decision
from policies.evaluator import Evaluator, PythonEvaluator, RustEvaluator
from policies.gate import decide
from policies.load import PACKS, Pack, load_reference, policy_of, read_packs
from policies.policy import Policy
from policies.reference import Reference

NOW = "2026-11-30T12:00:00Z"
PYTHON, RUST = PythonEvaluator(), RustEvaluator()


@pytest.fixture(scope="session")
def packs() -> tuple[Pack, ...]:
    return read_packs([PACKS])


@pytest.fixture(scope="session")
def policy(packs: tuple[Pack, ...]) -> Policy:
    return policy_of(packs)


@pytest.fixture(scope="session")
def reference() -> Reference:
    return load_reference(site=CASE_SITE)


@pytest.fixture(params=[PYTHON, RUST], ids=lambda e: e.name)
def evaluator(request: pytest.FixtureRequest) -> Evaluator:
    return request.param


@pytest.fixture
def base(packs: tuple[Pack, ...]) -> Callable[[str], dict[str, Any]]:
    """Copy a base facts document of the packs by name, without what is laid over."""

    def copied(name: str) -> dict[str, Any]:
        found = next(pack.bases[name] for pack in packs if name in pack.bases)
        return copy.deepcopy({k: v for k, v in found.items() if k != "derived"})

    return copied


@pytest.fixture
def judge(policy: Policy, reference: Reference) -> Callable[..., Decision]:
    """Decide with the shipped packs and reference data."""

    def judged(facts: Any, **options: Any) -> Decision:
        return decide(
            options.pop("policy", policy),
            options.pop("reference", reference),
            facts,
            evaluated_at=options.pop("evaluated_at", NOW),
            subject=options.pop("subject", "job:job_01@1"),
            **options,
        )

    return judged
