"""Reading packs and reference data from folders: all or nothing.

A pack is a folder with `pack.yaml` (`placet.pack/1`), `bases.yaml` (facts documents that the
rules' own tests start from), perhaps `survivors.yaml`, and one rule in each other `*.yaml` file.
A reference folder holds one table in each file: {"table": …, "defaults": {…}, "rows": [{…}, …]},
where `defaults` is written into each row that does not say otherwise. One wrong file refuses the
whole load, so the policy that is active stays active. A file that is not read is one that somebody
believes in: so a pack holds regular `*.yaml` files and the texts in `_TEXTS`, and anything else
refuses it, as does a folder beside packs that is none, or a link that leads out of the pack.
"""

import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from policies.facts import FactsError, parse_facts
from policies.lint import check_pack, lint_rule
from policies.overlay import OverlayRow, make_row
from policies.policy import Policy
from policies.reference import FORMAT, Reference, ReferenceDataError, check
from policies.rule import Rule, RuleError
from policies.strict import MAX_YAML_BYTES, StrictError, parse_yaml

PACKS = Path(__file__).parent / "packs"
REFERENCE = Path(__file__).parent / "reference"
_NOT_RULES = frozenset({"pack.yaml", "bases.yaml", "survivors.yaml"})
_TEXTS = frozenset({"README.md", "LICENSE", "LICENSE.md", "NOTICE"})


@dataclass(frozen=True)
class Pack:
    """A pack as its folder has it: rules, their own tests and the facts those start from."""

    document: Mapping[str, Any]
    rules: tuple[Rule, ...]
    tests: Mapping[str, tuple[Mapping[str, Any], ...]]
    bases: Mapping[str, Mapping[str, Any]]
    survivors: Any = field(default_factory=lambda: {"mutants": []})
    """Content of `survivors.yaml`, which `policies.mutate` reads."""
    files: Mapping[str, str] = field(default_factory=dict)
    """The file of each rule, as `folder/name.yaml`."""


def read_packs(dirs: Sequence[Path]) -> tuple[Pack, ...]:
    """Read and lint the packs in `dirs`: each is a pack, or a folder of packs.

    Raises:
        RuleError: a file that is not in the strict subset, does not lint, or is not there.
    """
    return tuple(read_pack(folder) for root in dirs for folder in _pack_dirs(Path(root)))


def _pack_dirs(root: Path) -> list[Path]:
    if (root / "pack.yaml").is_file():
        return [root]
    found = sorted(path.parent for path in root.glob("*/pack.yaml"))
    if not found:
        raise RuleError(f"`{root.name}`: expected `pack.yaml` there or in a folder below")
    for path in sorted(root.iterdir()):
        if path not in found and (_is_yaml(path) or any(map(_is_yaml, path.glob("*")))):
            raise RuleError(f"`{root.name}/{path.name}`: has no `pack.yaml`, so nothing reads it")
    return found


def _is_yaml(path: Path) -> bool:
    return path.suffix.lower() in (".yaml", ".yml")


def _pack_files(folder: Path) -> list[Path]:
    """List the YAML files of a pack, by name.

    Raises:
        RuleError: something else is there, which would be taken for a rule but not read.
    """
    found = []
    for path in sorted(folder.iterdir()):
        if path.suffix == ".yaml" and not path.name.startswith("."):
            found.append(path)
        elif path.name not in _TEXTS and (_is_yaml(path) or not path.name.startswith(".")):
            raise RuleError(
                f"{folder.name}/{path.name}: a pack holds `*.yaml` files only; rename or remove it"
            )
    return found


def _read(path: Path) -> bytes:
    """Read a regular file of a pack that is not larger than YAML may be.

    Raises:
        RuleError: another kind of file, a link out of the pack, too large, or not readable.
    """
    where = f"{path.parent.name}/{path.name}"
    try:
        if not path.resolve(strict=True).is_relative_to(path.parent.resolve()):
            raise RuleError(f"{where}: a link that leads out of the pack; copy the file there")
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise RuleError(f"{where}: expected a regular file")
        if status.st_size > MAX_YAML_BYTES:
            raise RuleError(f"{where}: expected at most {MAX_YAML_BYTES} bytes")
        return path.read_bytes()
    except (OSError, RuntimeError) as cause:  # a loop of links is a RuntimeError in 3.11
        raise RuleError(f"{where}: cannot be read ({type(cause).__name__})") from cause


def read_pack(folder: Path) -> Pack:
    """Read and lint one pack.

    Raises:
        RuleError: as `read_packs`.
    """
    document = _yaml(folder / "pack.yaml")
    check_pack(document, f"{folder.name}/pack.yaml")
    bases = _bases(folder / "bases.yaml")
    rules: list[Rule] = []
    tests: dict[str, tuple[Mapping[str, Any], ...]] = {}
    files: dict[str, str] = {}
    for path in _pack_files(folder):
        if path.name in _NOT_RULES:
            continue
        where = f"{folder.name}/{path.name}"
        rule: Any = _yaml(path)
        lint_rule(rule, where)
        for test in rule["tests"]:
            if test["given"] not in bases:
                raise RuleError(f"{where}: test `{test['name']}`: no base `{test['given']}`")
        tests[rule["id"]] = tuple(rule["tests"])
        files[rule["id"]] = where
        rules.append(Rule({name: value for name, value in rule.items() if name != "tests"}))
    if not rules:
        raise RuleError(f"`{folder.name}`: a pack without rules")
    listed = folder / "survivors.yaml"
    survivors = _yaml(listed) if listed.is_file() else {"mutants": []}
    return Pack(document, tuple(rules), tests, bases, survivors, files)


def _yaml(path: Path) -> Any:
    try:
        return parse_yaml(_read(path))
    except StrictError as cause:
        raise RuleError(f"{path.parent.name}/{path.name}: {cause}") from cause


def _bases(path: Path) -> Mapping[str, Mapping[str, Any]]:
    if not path.is_file():
        return {}
    try:
        bases = parse_facts(_read(path), syntax="yaml")
    except FactsError as cause:
        raise RuleError(f"{path.parent.name}/{path.name}: {cause}") from cause
    for name, base in bases.items():
        if not isinstance(base, dict):
            raise RuleError(f"{path.parent.name}/{path.name}: base `{name}` is not an object")
    return bases


def policy_of(packs: Sequence[Pack]) -> Policy:
    """Unite packs in one policy; rules are ordered by id.

    Raises:
        RuleError: two packs or two rules have the same id.
    """
    ids = [str(pack.document["id"]) for pack in packs]
    if len(set(ids)) != len(ids):
        raise RuleError(f"packs {sorted(ids)}: expected each once")
    rules = sorted((rule for pack in packs for rule in pack.rules), key=lambda rule: rule.id)
    documents = sorted((pack.document for pack in packs), key=lambda d: str(d["id"]))
    return Policy(tuple(documents), tuple(rules))


def load_policy(dirs: Sequence[Path] = (PACKS,)) -> Policy:
    """Load a policy from folders of packs; by default all that ship.

    Raises:
        RuleError: as `read_packs` and `policy_of`.
    """
    return policy_of(read_packs(dirs))


def load_reference(folder: Path = REFERENCE, *, site: Mapping[str, Any] | None = None) -> Reference:
    """Load reference data from a folder, with the operator's own site if there is one.

    Raises:
        ReferenceDataError: a file is not strict YAML, or a row is refused.
    """
    tables = _tables(folder)
    declared = None if site is None else dict(site)
    check({"format": FORMAT, "site": declared, "tables": tables})
    return Reference({name: tuple(rows) for name, rows in tables.items()}, declared)


def load_overlay(folder: Path, *, declared_by: str) -> tuple[OverlayRow, ...]:
    """Load an installation's own rows from a folder with the form of a reference folder.

    A row that does not say who declares it is declared by `declared_by`.

    Raises:
        ReferenceDataError: no such folder, a file is not strict YAML, or a row is refused.
    """
    if not Path(folder).is_dir():
        raise ReferenceDataError(f"`{folder}` is no folder; expected one with tables in it")
    return tuple(
        make_row(table, {"declared_by": declared_by, **row} if isinstance(row, dict) else {})
        for table, rows in _tables(folder).items()
        for row in rows
    )


def _tables(folder: Path) -> dict[str, list[Any]]:
    tables: dict[str, list[Any]] = {}
    for path in sorted(Path(folder).glob("*.yaml")):
        try:
            content: Any = parse_yaml(path.read_bytes())
        except StrictError as cause:
            raise ReferenceDataError(f"{path.name}: {cause}") from cause
        if not isinstance(content, dict) or set(content) != {"table", "defaults", "rows"}:
            raise ReferenceDataError(f"{path.name}: expected `table`, `defaults` and `rows`")
        if not isinstance(content["rows"], list) or not isinstance(content["defaults"], dict):
            raise ReferenceDataError(f"{path.name}: expected a list of rows and a map of defaults")
        rows = [
            {**content["defaults"], **row} if isinstance(row, dict) else row
            for row in content["rows"]
        ]
        tables.setdefault(str(content["table"]), []).extend(rows)
    return tables
