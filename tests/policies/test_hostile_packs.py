"""Packs that somebody tampered with or mangled: refused whole, with the file, never half a load."""

import os
import shutil
from pathlib import Path

import pytest

from policies.load import PACKS, load_policy
from policies.rule import RuleError
from policies.strict import StrictError, parse_yaml

RULE = "eu-baseline/scope-gpus.yaml"
TEXT = (PACKS / RULE).read_text()
LAUGHS = "a: &a [x,x]\n" + "".join(
    f"{chr(c)}: &{chr(c)} [*{chr(c - 1)},*{chr(c - 1)}]\n" for c in range(98, 123)
)


@pytest.fixture
def packs(tmp_path):
    return Path(shutil.copytree(PACKS, tmp_path / "packs"))


def link(path, target):
    path.unlink()
    path.symlink_to(target)


def write(text):
    return lambda packs: (packs / RULE).write_text(text)


def move(name):
    def moved(packs):
        (packs / name).parent.mkdir(exist_ok=True)
        (packs / RULE).rename(packs / name)

    return moved


def fifo(packs):
    (packs / RULE).unlink()
    os.mkfifo(packs / RULE)


def beside(packs):
    (packs / "own").mkdir()
    (packs / "own" / "rule.yaml").write_text(TEXT)


HOSTILE = {
    "a link out of the pack": (lambda p: link(p / RULE, "/etc/passwd"), "leads out of the pack"),
    "an endless file": (lambda p: link(p / RULE, "/dev/zero"), "leads out of the pack"),
    "a link to a rule elsewhere": (lambda p: link(p / RULE, PACKS / RULE), "leads out of the pack"),
    "a link to nothing": (lambda p: link(p / RULE, "nothing.yaml"), "cannot be read"),
    "a link to itself": (lambda p: link(p / RULE, p / RULE), "cannot be read"),
    "a pipe": (fifo, "regular file"),
    "a folder": (lambda p: (p / "fr-hds" / "x.yaml").mkdir(), "regular file"),
    "a huge file": (write("a: " + "x" * 2_000_000), "at most 1048576 bytes"),
    "deep nesting": (write("[" * 10_000), "nesting is refused"),
    "a billion laughs": (write(LAUGHS), "anchor or alias is refused"),
    "laughs in the pack": (
        lambda p: (p / "fr-hds" / "pack.yaml").write_text(LAUGHS),
        "anchor or alias is refused",
    ),
    "laughs in the bases": (
        lambda p: (p / "fr-hds" / "bases.yaml").write_text(LAUGHS),
        "anchor or alias is refused",
    ),
    "an id twice": (lambda p: (p / "eu-baseline" / "zz.yaml").write_text(TEXT), "is there twice"),
    "a pack twice": (
        lambda p: shutil.copytree(p / "fr-hds", p / "fr-hds-2"),
        "expected each once",
    ),
    "a NUL": (write(TEXT + "\x00"), "not YAML"),
    "bytes that are no UTF-8": (lambda p: (p / RULE).write_bytes(b"\xff" + TEXT.encode()), "UTF-8"),
    "UTF-16": (lambda p: (p / RULE).write_bytes(TEXT.encode("utf-16")), "UTF-8"),
    "an id that is a path": (write(TEXT.replace("id: scope.gpus", "id: ../x")), "at `/id`"),
    "an invisible character": (
        write(TEXT.replace('en: "', 'en: "\u202e', 1)),
        "control or invisible",
    ),
    "a number of 5000 digits": (
        write(TEXT.replace("maximum: 4", "maximum: " + "9" * 5000)),
        "integer of 5000 digits",
    ),
    "nothing in it": (write(""), "empty document"),
    "another suffix": (move("eu-baseline/scope-gpus.yml"), r"`\*.yaml` files only"),
    "a suffix in capitals": (move("eu-baseline/scope-gpus.YAML"), r"`\*.yaml` files only"),
    "a folder below": (move("eu-baseline/more/scope-gpus.yaml"), r"`\*.yaml` files only"),
    "a hidden rule": (move("eu-baseline/.scope-gpus.yaml"), r"`\*.yaml` files only"),
    "a kept copy": (move("eu-baseline/scope-gpus.yaml.orig"), r"`\*.yaml` files only"),
    "a rule beside the packs": (move("scope-gpus.yaml"), "has no `pack.yaml`"),
    "a folder of rules that is no pack": (beside, "has no `pack.yaml`"),
    "a pack's own file renamed": (
        lambda p: (p / "fr-hds" / "pack.yaml").rename(p / "fr-hds" / "pack.yml"),
        "has no `pack.yaml`",
    ),
}


@pytest.mark.parametrize(("spoil", "message"), HOSTILE.values(), ids=HOSTILE)
def test_a_spoilt_pack_is_refused_whole(packs, spoil, message):
    spoil(packs)

    with pytest.raises(RuleError, match=message):
        load_policy([packs])


def test_what_people_keep_beside_rules_does_no_harm(packs):
    before = load_policy([packs]).digest
    (packs / "fr-hds" / "README.md").write_text("what this is")
    (packs / "fr-hds" / ".gitattributes").write_text("*.yaml text")
    (packs / "README.md").write_text("what these are")
    (packs / RULE).rename(packs / "eu-baseline" / "target.yaml")
    (packs / RULE).symlink_to("target.yaml")  # as mounted configuration does
    (packs / "eu-baseline" / "target.yaml").rename(packs / "eu-baseline" / ".target")
    (packs / RULE).unlink()
    (packs / RULE).symlink_to(".target")

    assert load_policy([packs]).digest == before


@pytest.mark.parametrize("digits", [21, 4301, 100_000])
def test_an_endless_number_is_refused_with_its_line(digits):
    with pytest.raises(StrictError, match=f"line 2: integer of {digits} digits"):
        parse_yaml(b"a: 1\nb: " + b"9" * digits)
