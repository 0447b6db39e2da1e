"""Packs in the operator's folders are used whole and tested, or not at all."""

import shutil
from pathlib import Path

import pytest

from policies.load import PACKS, Pack
from policies.rule import RuleError
from service import own_packs
from service.app import create_app
from service.installation import Installation, build
from service.own_packs import Offer, Refusal

RULE = "eu-baseline/budget-limit.yaml"


# What the folders hold does not depend on the database.
@pytest.fixture
def database_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'placet.db'}"


@pytest.fixture
def packs(tmp_path: Path) -> Path:
    folder = tmp_path / "our-packs"
    shutil.copytree(PACKS, folder)
    return folder


def change(packs: Path, old: str, new: str) -> None:
    path = packs / RULE
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def again(world) -> Installation:
    """Build a second process of the same installation, as a restart does."""
    return build(world.wired.settings, clock=world.clock)


def restarted(world):
    wired = again(world)
    try:
        wired.start()
    finally:
        wired.database.dispose()
    return wired


BREAKS = {
    "lint": ("format: placet.rule/1", "format: placet.rule/9"),
    "tests": ("expect: violated", "expect: pass"),
}


@pytest.mark.parametrize("code", BREAKS)
def test_what_was_in_force_stays_when_the_packs_on_the_disk_break(
    make_world, packs, code, operator_log
):
    world = make_world(policy_dirs=(packs,))
    before, kinds = world.in_force, world.kinds()
    change(packs, *BREAKS[code])
    change(packs, '"1.0.0"', '"1.0.1"')

    wired = restarted(world)

    assert world.in_force == before
    assert world.kinds() == kinds
    (said,) = [line for line in operator_log if line["event"] == "policy.packs_refused"]
    assert (said["folder"], said["reason_code"]) == (str(packs), code)
    assert said["still"] == before.policy.digest
    assert RULE in said["reason"]
    refused = wired.refused_packs()
    assert isinstance(refused, Refusal)
    assert (refused.code, refused.detail) == (code, said["reason"])


def test_the_probe_names_the_file_and_not_where_it_lies(make_world, packs):
    world = make_world(policy_dirs=(packs,))
    world.worker.publish()
    assert world.get("/readyz", None)["refused_packs"] is None
    change(packs, *BREAKS["lint"])

    wired = again(world)
    answer = world.ask("GET", "/readyz", None, app=create_app(wired))
    wired.database.dispose()

    assert answer.status == 200
    assert answer.json["refused_packs"]["reason_code"] == "lint"
    assert RULE in answer.json["refused_packs"]["detail"]
    assert str(packs.parent) not in answer.content.decode()


@pytest.mark.parametrize("code", BREAKS)
def test_nothing_starts_on_broken_packs_when_nothing_was_in_force(make_world, packs, code):
    change(packs, *BREAKS[code])

    with pytest.raises(RuleError, match="no policy is in force that could stay") as refused:
        make_world(policy_dirs=(packs,))

    assert str(packs) in str(refused.value)
    assert RULE in str(refused.value)
    assert "\n" not in str(refused.value)


def test_packs_that_hold_again_are_in_force_at_the_next_start(make_world, packs):
    world = make_world(policy_dirs=(packs,))
    before = world.in_force.policy.digest
    change(packs, '"1.0.0"', '"1.0.1"')
    whole = (packs / RULE).read_text()
    change(packs, *BREAKS["tests"])
    restarted(world)
    assert world.in_force.policy.digest == before

    (packs / RULE).write_text(whole)
    restarted(world)

    assert world.in_force.policy.digest != before


def test_a_missing_folder_takes_nothing_away(make_world, packs):
    world = make_world(policy_dirs=(packs,))
    before = world.in_force
    shutil.rmtree(packs)

    assert restarted(world).refused_packs().code == "lint"
    assert world.in_force == before


class Counted(Offer):
    """An offer that must not be tested."""

    @property
    def failed_tests(self) -> Refusal | None:
        raise AssertionError("a restart ran the rules' own tests")


def test_a_restart_with_the_same_packs_runs_no_tests(make_world, packs):
    world = make_world(policy_dirs=(packs,))
    read = own_packs.read((packs,))
    enforced = world.in_force.policy.digest
    assert read.policy is not None
    assert read.policy.digest == enforced

    world.restart(offer=Counted(read.policy, packs=read.packs))

    assert world.kinds().count("policy.activated") == 1


def test_a_rule_without_a_test_for_each_outcome_is_named_with_its_file(packs):
    read = own_packs.read((packs,))
    ((_, found),) = read.packs
    pack = found[0]
    rule = pack.rules[0].id
    bare = Pack(pack.document, pack.rules, {**pack.tests, rule: ()}, pack.bases, files=pack.files)

    failed = own_packs.failures([bare])

    assert {line.partition(": ")[0] for line in failed} == {pack.files[rule]}
    assert len(failed) == 4


def test_two_folders_with_one_pack_are_refused_by_both_names(packs, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(packs / "eu-baseline", other)

    read = own_packs.read((packs, other))

    assert read.policy is None
    assert read.unread.folder == f"{packs}, {other}"
