"""The packs in the folders that the operator named: all of them, linted and tested, or none.

Whoever edits a rule on the machine gets no other standard than who signs a bundle: every file is in
the strict subset, lints, and its own tests pass, each outcome among them. Otherwise nothing of the
folders is used. What was in force before stays; the operator's log, `/readyz` and `placet doctor`
name folder, file and reason. Where nothing was in force, nothing starts.

Tests are run for a policy that is not in force yet. Its digest covers all that decides, so a normal
restart runs none; the packs of this release were tested when it was built.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from policies.cases import CASE_SITE, run_cases, uncovered
from policies.evaluator import default_evaluator
from policies.load import PACKS, Pack, load_reference, policy_of, read_packs
from policies.policy import Policy
from policies.rule import RuleError
from service.force_tables import PolicyAct

_MOST_NAMED = 3


@dataclass(frozen=True)
class Refusal:
    """Why nothing of the folders is used.

    Attributes:
        code: `lint` or `tests`, as bundles are refused.
        folder: as the setting has it.
        detail: which file, and what is wrong with it; names no path above the pack.
    """

    code: str
    folder: str
    detail: str

    def __str__(self) -> str:
        return f"nothing in `{self.folder}` is used ({self.code}): {self.detail}"


@dataclass(frozen=True)
class Offer:
    """What the folders bring: a policy, or why there is none.

    Attributes:
        policy: None when something does not load.
        unread: why, then.
        packs: by folder, to be tested before they decide; empty for this release's own.
    """

    policy: Policy | None
    unread: Refusal | None = None
    packs: tuple[tuple[Path, tuple[Pack, ...]], ...] = ()

    def refusal(self, enforced: PolicyAct | None) -> Refusal | None:
        """Say why it is not used, given what is in force; runs the rules' own tests once if needed.

        They are not needed for what is in force already, nor beside a bundle, which goes first.
        """
        if self.policy is None:
            return self.unread
        is_decided = enforced is not None and (
            enforced.bundle_digest is not None or enforced.policy_digest == self.policy.digest
        )
        return None if is_decided else self.failed_tests

    @cached_property
    def failed_tests(self) -> Refusal | None:
        """Run the rules' own tests, which takes some milliseconds a rule; None when all pass."""
        for folder, packs in self.packs:
            if failed := failures(packs):
                return Refusal("tests", str(folder), told(failed))
        return None


def read(dirs: Sequence[Path]) -> Offer:
    """Read and lint the packs in `dirs`; by default those of this release."""
    folders = tuple(dirs) or (PACKS,)
    found: list[tuple[Path, tuple[Pack, ...]]] = []
    for folder in folders:
        try:
            found.append((folder, read_packs((folder,))))
        except (RuleError, OSError) as error:
            return Offer(None, Refusal("lint", str(folder), str(error)))
    try:
        policy = policy_of([pack for _, packs in found for pack in packs])
    except RuleError as error:
        named = ", ".join(str(folder) for folder in folders)
        return Offer(None, Refusal("lint", named, str(error)))
    return Offer(policy, packs=tuple(found) if dirs else ())


def failures(packs: Sequence[Pack]) -> list[str]:
    """Run the rules' own tests; say which fail, in which file, and which are not there."""
    files = {rule: name for pack in packs for rule, name in pack.files.items()}
    results = run_cases(packs, load_reference(site=CASE_SITE), default_evaluator())
    bad = [f"{files[one.rule]}: `{one.case}`: {one.detail}" for one in results if not one.ok]
    bad += [f"{files[rule]}: no test expects `{outcome}`" for rule, outcome in uncovered(packs)]
    return bad


def told(failed: Sequence[str]) -> str:
    """Put failed tests in one line; the first few are named."""
    return f"{len(failed)} of the rules' own tests fail: {'; '.join(failed[:_MOST_NAMED])}"
