"""Sizes, names and constructs that this code base allows itself; each exception has its reason."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from sources import ROOT, modules, tracked

MODULE_LINES = 400
FUNCTION_LINES = 50
_VAGUE = re.compile(r"(^|_)(utils?|helpers?|managers?|common|misc)$")
_GENERATED = "migrations/versions"  # a migration is written once, by a generator, and never grows

# Who may ask what time it is. Everyone else receives a clock or an instant.
CLOCKS = {
    "policies/commands/sources.py": "the day to look from, when --on does not say",
    "service/clock.py": "the clock that composition roots choose",
    "service/ids.py": "a UUIDv7 starts with the time; ids only sort by it",
    "service/demo/house.py": "names the folder of one demo run; the demo is a composition root",
    "service/engines/local.py": "the grace period between asking a process to end and killing it",
    "service/serving.py": "the same, for endpoints",
    "trainer/events.py": "stamps progress lines, which are telemetry",
    "trainer/run.py": "the trainer's composition root",
}
# Who may end a transaction.
COMMITS = {
    "service/transaction.py": "the one place where a change and its entry commit together",
    "service/ledger.py": "the sequencer gives indexes; the publisher keeps its signed checkpoint",
    "service/objects/files.py": "a temporary file takes its name; no database",
}
# Who may catch everything.
CATCH_ALLS = {
    "service/app.py": "composition root: our bug becomes a 500, logged",
    "service/cli.py": "composition root: our bug becomes one line",
    "service/worker.py": "composition root: a bug in one pass ends one pass",
}
_NOW = {
    ("datetime", "now"),
    ("datetime", "utcnow"),
    ("datetime", "today"),
    ("date", "today"),
    ("time", "time"),
    ("time", "time_ns"),
}


def sites(matches) -> set[str]:
    """Return the files of the rooms in which a node matches."""
    return {
        path.as_posix()
        for path, tree in modules().items()
        for node in ast.walk(tree)
        if matches(node)
    }


def name_of(node: ast.expr) -> str:
    """Return the last name of `a.b.name` or `name`."""
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def functions() -> Iterator[tuple[Path, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for path, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield path, node


def test_no_module_is_longer_than_a_newcomer_reads():
    too_long = {
        path.as_posix(): lines
        for path in modules()
        if _GENERATED not in path.as_posix()
        and (lines := len((ROOT / path).read_text(encoding="utf-8").splitlines())) > MODULE_LINES
    }

    assert too_long == {}


def length_of(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Count the lines of a function without its docstring, which may say what it needs to."""
    lines = (node.end_lineno or 0) - node.lineno + 1
    if ast.get_docstring(node, clean=False) is None:
        return lines
    return lines - ((node.body[0].end_lineno or 0) - node.body[0].lineno + 1)


def test_no_function_is_longer_than_a_screen():
    too_long = {
        f"{path.as_posix()}:{node.name}": length
        for path, node in functions()
        if _GENERATED not in path.as_posix() and (length := length_of(node)) > FUNCTION_LINES
    }

    assert too_long == {}


def test_modules_are_named_after_what_they_do():
    assert [path for path in modules() if _VAGUE.search(path.stem)] == []


def test_every_module_says_what_it_is_for():
    assert [path for path, tree in modules().items() if not ast.get_docstring(tree)] == []


def test_only_named_places_read_the_clock():
    def reads_the_clock(node: ast.AST) -> bool:
        return isinstance(node, ast.Attribute) and (name_of(node.value), node.attr) in _NOW

    assert sites(reads_the_clock) == set(CLOCKS)


def test_only_named_places_commit():
    def commits(node: ast.AST) -> bool:
        return (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "commit"
            and not node.args  # `sealed.commit(key, …)` makes a commitment
        )

    assert sites(commits) == set(COMMITS)


def test_only_composition_roots_catch_everything():
    def catches_everything(node: ast.AST) -> bool:
        if not isinstance(node, ast.ExceptHandler):
            return False
        caught = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
        return any(
            each is None or name_of(each) in {"Exception", "BaseException"} for each in caught
        )

    assert sites(catches_everything) == set(CATCH_ALLS)


def test_annotations_are_real_where_frameworks_read_them():
    def postpones(node: ast.AST) -> bool:
        return isinstance(node, ast.ImportFrom) and node.module == "__future__"

    assert sites(postpones) == set()


def test_imports_are_absolute():
    def is_relative(node: ast.AST) -> bool:
        return isinstance(node, ast.ImportFrom) and node.level > 0

    assert sites(is_relative) == set()


def test_nothing_is_left_hollow():
    hollow = re.compile(r"\b(TODO|FIXME|XXX|HACK|NotImplementedError|NotImplemented)\b|\bpass +#")

    found = [
        f"{path.as_posix()}:{number}"
        for path in modules()
        for number, line in enumerate((ROOT / path).read_text(encoding="utf-8").splitlines(), 1)
        if hollow.search(line)
    ]

    assert found == []


@pytest.mark.parametrize(
    ("what", "pattern"),
    [
        ("a path of a developer's machine", r"(?<![\w.-])/(work|root|Users|home/[a-z])/"),
        ("a package index", r"(pypi|pythonhosted|npmjs)\.(org|com)|(index|find-link)s?[-_]ur[l]"),
        ("a private key", r"-----BEGIN [A-Z ]*PRIVATE KEY"),
    ],
)
def test_no_tracked_file_holds(what, pattern):
    searched = re.compile(pattern)
    ours = Path(__file__).resolve().relative_to(ROOT)

    found = [
        f"{path.as_posix()}:{number}: {line.strip()[:80]}"
        for path in tracked()
        if path != ours
        for number, line in enumerate(
            (ROOT / path).read_text(encoding="utf-8", errors="replace").splitlines(), 1
        )
        if searched.search(line)
    ]

    assert found == [], what
