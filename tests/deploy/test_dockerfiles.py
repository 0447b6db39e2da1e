"""Our images run as a user of their own and are built from pins."""

import re
import shlex

import pytest
from sources import ROOT, tracked

PINS = set((ROOT / "constraints.txt").read_text(encoding="utf-8").lower().splitlines())
DOCKERFILES = [path for path in tracked() if path.name == "Dockerfile"]


def instructions(path) -> list[tuple[str, str]]:
    """Return (instruction, arguments) with continued lines joined and comments left out."""
    lines = (ROOT / path).read_text(encoding="utf-8").splitlines()
    text = "\n".join(line for line in lines if not line.lstrip().startswith("#"))
    joined = re.sub(r"\\\n\s*", " ", text)
    return [
        (words[0].upper(), words[2])
        for line in joined.splitlines()
        if (words := line.partition(" "))[0]
    ]


def users(path) -> dict[str, str | None]:
    """Return the user that each stage ends with; stages inherit it from the stage they build on."""
    found: dict[str, str | None] = {}
    stage = ""
    for instruction, arguments in instructions(path):
        if instruction == "FROM":
            base, _, name = arguments.partition(" AS ")
            stage = name or base
            found[stage] = found.get(base)
        elif instruction == "USER":
            found[stage] = arguments
    return found


def test_every_image_that_compose_builds_has_its_dockerfile():
    assert {path.as_posix() for path in DOCKERFILES} >= {"service/Dockerfile"}


@pytest.mark.parametrize("path", DOCKERFILES, ids=str)
class TestEveryDockerfile:
    def test_ends_as_a_user_other_than_root(self, path):
        last = list(users(path).values())[-1]

        assert last is not None
        assert last.partition(":")[0] not in {"root", "0"}

    def test_fetches_nothing_but_packages(self, path):
        used = instructions(path)

        assert not [arguments for instruction, arguments in used if instruction == "ADD"]
        assert not [each for each in used if re.search(r"https?://|\bcurl\b|\bwget\b", each[1])]

    def test_installs_by_the_pins(self, path):
        installs = [
            part
            for instruction, arguments in instructions(path)
            if instruction == "RUN"
            for part in arguments.split("&&")
            if "pip install" in part
        ]

        assert installs
        for part in installs:
            if re.search(r"(--constraint|-c) \S*constraints\.txt", part):
                continue
            words = shlex.split(part.partition("pip install")[2])
            named = [each for each in words if not each.startswith("$")]  # a builder's own choice
            assert {re.sub(r"\[.*\]", "", each).lower() for each in named} <= PINS, part

    def test_holds_no_secret(self, path):
        for instruction, arguments in instructions(path):
            if instruction in {"ARG", "ENV"}:
                assert not re.search(r"PASSWORD|SECRET|TOKEN", arguments), arguments


def test_the_images_that_compose_starts_are_stages_with_a_user():
    stages = users("service/Dockerfile")

    assert {name: stages[name] for name in ("s3", "service", "worker")} == dict.fromkeys(
        ("s3", "service", "worker"), "10001:10001"
    )


def test_the_build_context_holds_what_is_copied_and_nothing_else():
    allowed = {
        line[1:]
        for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
        if line.startswith("!")
    }
    copied = {
        source
        for path in DOCKERFILES
        for instruction, arguments in instructions(path)
        if instruction == "COPY" and "--from" not in arguments
        for source in arguments.split()[:-1]
        if not source.startswith("--")
    }

    assert {source.partition("/")[0] for source in copied} == allowed
